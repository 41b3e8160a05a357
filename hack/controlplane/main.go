// Command controlplane is a whole Kubernetes in one binary, control plane and
// node: the first argument names the program to be. Nothing in it is forked or
// patched; every program is the published module at the version that go.mod pins.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	kwoksignals "sigs.k8s.io/kwok/pkg/utils/signals"
)

// programs maps the name on the command line to what runs. Each gets os.Args
// with that name in front, as if it had been started as a binary of its own.
var programs = map[string]func() int{
	"etcd": func() int {
		etcdmain.Main(os.Args)
		return 0
	},
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(manager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kubectl":                 func() int { return execute(kubectl.NewDefaultKubectlCommand()) },
	"kwok":                    runKwok,
	"kubelet":                 func() int { return cli.Run(newKubelet()) },
	"kube-proxy":              func() int { return cli.Run(proxy.NewProxyCommand()) },
	"device-manager":          runDeviceManager,
}

// inHelp is the order in which the help names the programs.
var inHelp = []string{
	"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok",
	"kubelet", "kube-proxy", "device-manager",
}

func main() {
	if name := filepath.Base(os.Args[0]); programs[name] != nil {
		// Started through a link named after the program (envtest's layout).
		os.Exit(programs[name]())
	}
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		fmt.Fprintf(os.Stderr, "usage: %s {%s} [flags]\n", filepath.Base(os.Args[0]), strings.Join(inHelp, "|"))
		os.Exit(2)
	}
	name := os.Args[1]
	os.Args = append([]string{name}, os.Args[2:]...)
	os.Exit(programs[name]())
}

func execute(command *cobra.Command) int {
	if err := cli.RunNoErrOutput(command); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// runKwok prepares kwok's context as its configuration loader wants it: the loader
// reads --config before cobra parses the rest. kwok gets a flag set of its own,
// because component-base has put a --version that is no boolean on the global one,
// and cobra refuses it there.
func runKwok() int {
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ExitOnError)
	early := pflag.NewFlagSet("early", pflag.ContinueOnError)
	early.ParseErrorsAllowlist.UnknownFlags = true
	early.Usage = func() {}
	ctx, _ := kwoklog.InitFlags(kwoksignals.SetupSignalContext(), early)
	ctx, err := kwokconfig.InitFlags(ctx, early)
	if err != nil {
		fmt.Fprintln(os.Stderr, "kwok configuration:", err)
		return 1
	}
	command := kwok.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(early)
	if err := command.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

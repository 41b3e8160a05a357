//go:build !other_release

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	resourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubernetes/pkg/kubelet/apis/podresources"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/config"
	"k8s.io/kubernetes/pkg/kubelet/server"
)

// The kubelet's device manager and pod-resources service without the rest of the
// kubelet, for many allocations and for killing either side at will. Both sockets
// are where the kubelet has them, so it wants a mount namespace of its own.
//
// Standard input holds one JSON object a line, standard output answers with one:
//
//	{"admit": POD}    admit a pod as the kubelet does: containers in order, one pod at a time
//	{"known": POD}    a pod that is admitted elsewhere or was before a restart: listed, nothing allocated
//	{"remove": "UID"} the pod has ended
//	{"capacity": true}
//
// The answer has "error" (empty if it went well) and what was asked for.
type order struct {
	Admit    *v1.Pod   `json:"admit"`
	Known    *v1.Pod   `json:"known"`
	Remove   types.UID `json:"remove"`
	Capacity bool      `json:"capacity"`
}

type answer struct {
	Error       string             `json:"error"`
	Containers  map[string]outcome `json:"containers,omitempty"`
	Capacity    v1.ResourceList    `json:"capacity,omitempty"`
	Allocatable v1.ResourceList    `json:"allocatable,omitempty"`
}

// outcome is what one container would be started with.
type outcome struct {
	IDs         map[string][]string `json:"ids"`
	Environment map[string]string   `json:"environment"`
	Paths       map[string]string   `json:"paths"`
	CDI         []string            `json:"cdi"`
}

// node is the kubelet's part of the work: it knows the pods in the order of their admission.
type node struct {
	manager *devicemanager.ManagerImpl
	mutex   sync.Mutex
	pods    []*v1.Pod
}

func (n *node) GetActivePods() []*v1.Pod {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	return append([]*v1.Pod(nil), n.pods...)
}

func (n *node) GetPods() []*v1.Pod { return n.GetActivePods() }

func (n *node) GetPodByName(namespace, name string) (*v1.Pod, bool) {
	for _, pod := range n.GetActivePods() {
		if pod.Namespace == namespace && pod.Name == name {
			return pod, true
		}
	}
	return nil, false
}

func (n *node) UpdateAllocatedDevices() { n.manager.UpdateAllocatedDevices() }

func (n *node) GetDevices(uid, container string) []*resourcesapi.ContainerDevices {
	return listed(n.manager.GetDevices(uid, container))
}

func (n *node) GetAllocatableDevices() []*resourcesapi.ContainerDevices {
	return listed(n.manager.GetAllocatableDevices())
}

func listed(found devicemanager.ResourceDeviceInstances) []*resourcesapi.ContainerDevices {
	var all []*resourcesapi.ContainerDevices
	for resource, devices := range found {
		for id := range devices {
			all = append(all, &resourcesapi.ContainerDevices{ResourceName: resource, DeviceIds: []string{id}})
		}
	}
	return all
}

// Processors, memory and claims are no matter of the device manager.
type nothing struct{}

func (nothing) GetCPUs(string, string) []int64                           { return nil }
func (nothing) GetAllocatableCPUs() []int64                              { return nil }
func (nothing) GetMemory(string, string) []*resourcesapi.ContainerMemory { return nil }
func (nothing) GetAllocatableMemory() []*resourcesapi.ContainerMemory    { return nil }
func (nothing) GetDynamicResources(*v1.Pod, *v1.Container) []*resourcesapi.DynamicResource {
	return nil
}

func (n *node) add(pod *v1.Pod) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	for _, each := range n.pods {
		if each.UID == pod.UID {
			return
		}
	}
	n.pods = append(n.pods, pod)
}

func (n *node) remove(uid types.UID) {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	var kept []*v1.Pod
	for _, each := range n.pods {
		if each.UID != uid {
			kept = append(kept, each)
		}
	}
	n.pods = kept
}

func (n *node) admit(pod *v1.Pod) (map[string]outcome, error) {
	n.add(pod)
	all := append(append([]v1.Container(nil), pod.Spec.InitContainers...), pod.Spec.Containers...)
	for index := range all {
		if err := n.manager.Allocate(pod, &all[index]); err != nil {
			n.remove(pod.UID)
			return nil, err
		}
	}
	outcomes := map[string]outcome{}
	for index := range all {
		options, err := n.manager.GetDeviceRunContainerOptions(context.Background(), pod, &all[index])
		if err != nil {
			return nil, err
		}
		outcomes[all[index].Name] = outcomeOf(options, n.manager.GetDevices(string(pod.UID), all[index].Name))
	}
	return outcomes, nil
}

func outcomeOf(options *devicemanager.DeviceRunContainerOptions, devices devicemanager.ResourceDeviceInstances) outcome {
	made := outcome{map[string][]string{}, map[string]string{}, map[string]string{}, []string{}}
	for resource, instances := range devices {
		made.IDs[resource] = sets.List(sets.KeySet(instances))
	}
	if options == nil {
		return made
	}
	for _, each := range options.Envs {
		made.Environment[each.Name] = each.Value
	}
	for _, each := range options.Devices {
		made.Paths[each.PathInContainer] = each.PathOnHost
	}
	for _, each := range options.CDIDevices {
		made.CDI = append(made.CDI, each.Name)
	}
	return made
}

func (n *node) obey(text []byte) answer {
	var asked order
	var made answer
	err := json.Unmarshal(text, &asked)
	switch {
	case err != nil:
	case asked.Admit != nil:
		made.Containers, err = n.admit(asked.Admit)
	case asked.Known != nil:
		n.add(asked.Known)
	case asked.Remove != "":
		n.remove(asked.Remove)
	case asked.Capacity:
		made.Capacity, made.Allocatable, _ = n.manager.GetCapacity()
	default:
		err = fmt.Errorf("no order in %s", text)
	}
	if err != nil {
		made.Error = err.Error()
	}
	return made
}

func runDeviceManager() int {
	ctx := context.Background()
	socket := filepath.Join(filepath.Dir(strings.TrimSuffix(pluginapi.DevicePluginPath, "/")), "pod-resources", "kubelet.sock")
	for _, folder := range []string{pluginapi.DevicePluginPath, filepath.Dir(socket)} {
		if err := os.MkdirAll(folder, 0o750); err != nil {
			fmt.Fprintln(os.Stderr, "device-manager:", err)
			return 1
		}
	}
	manager, err := devicemanager.NewManagerImpl(nil, topologymanager.NewFakeManager())
	if err != nil {
		fmt.Fprintln(os.Stderr, "device-manager:", err)
		return 1
	}
	own := &node{manager: manager}
	ready := config.NewSourcesReady(func(sets.Set[string]) bool { return true })
	err = manager.Start(klog.FromContext(ctx), own.GetActivePods, ready, containermap.NewContainerMap(), sets.New[string]())
	if err != nil {
		fmt.Fprintln(os.Stderr, "device-manager:", err)
		return 1
	}
	// A socket that a killed run has left would be in the way.
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		fmt.Fprintln(os.Stderr, "device-manager:", err)
		return 1
	}
	go server.ListenAndServePodResources(ctx, "unix://"+socket, podresources.PodResourcesProviders{
		Pods: own, Devices: own, Cpus: nothing{}, Memory: nothing{}, DynamicResources: nothing{},
	})
	lines := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for {
		text, err := lines.ReadBytes('\n')
		if err != nil {
			return 0 // whoever started it has gone
		}
		if err := answers.Encode(own.obey(text)); err != nil {
			return 1
		}
	}
}

//go:build other_release

package main

import (
	"fmt"
	"os"
)

// runDeviceManager stands for the device manager where the release of Kubernetes is
// not the usual one: its Go interface is internal, and another one in each release.
func runDeviceManager() int {
	fmt.Fprintln(os.Stderr, "the device manager alone is built of the release in go.mod only")
	return 1
}

module topogate.io/hack/bursts

go 1.26.0

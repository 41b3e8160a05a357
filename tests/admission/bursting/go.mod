module topogate.io/tests/bursting

go 1.26.0

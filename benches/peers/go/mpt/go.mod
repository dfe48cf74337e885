module coregw.test/peers/mpt

go 1.25.7

require (
	coregw.test/peers/driver v0.0.0
	rsc.io/tmp/mpt v0.0.0-20260706223531-5a501281bc9f
)

require golang.org/x/sys v0.37.0 // indirect

replace coregw.test/peers/driver => ../driver

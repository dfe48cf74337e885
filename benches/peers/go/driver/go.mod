module coregw.test/peers/driver

go 1.25

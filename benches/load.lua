-- What wrk sends: the bodies of a file, one a line, as POST requests in a circle. Says at the end what it measured.

local requests = {}
local at = 0

function init(args)
  for body in io.lines(args[2]) do
    requests[#requests + 1] = wrk.format("POST", args[1], { ["Content-Type"] = "application/json" }, body)
  end
end

function request()
  at = at % #requests + 1
  return requests[at]
end

function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format('\n{"requests": %d, "failed": %d, "microseconds": %d, "p50": %d, "p99": %d}\n',
    summary.requests, failed, summary.duration, latency:percentile(50), latency:percentile(99)))
end

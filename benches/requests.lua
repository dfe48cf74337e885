-- wrk script: sends the requests of a file, one per line ("METHOD PATH BODY"), cyclically from a random start. The body
-- "?4096" stands for that many bytes, different in each request. Further arguments are the Accept header of all requests, empty for none, and Authorization.
-- Prints a JSON summary at the end.

local lines, at = {}, 0
local fresh, filler

function init(args)
  math.randomseed(os.time() + tonumber(tostring({}):match("0x(%x+)"), 16) % 1000000)
  for line in io.lines(args[1]) do
    local method, path, body = line:match("^(%S+) (%S+) ?(.*)$")
    local size = body:match("^%?(%d+)$")
    if size then
      fresh, filler = path, string.rep("x", tonumber(size) - 32)
    else
      local headers = { ["Content-Type"] = body ~= "" and "application/json" or nil }
      headers["Accept"] = args[2] ~= "" and args[2] or nil
      headers["Authorization"] = args[3]
      lines[#lines + 1] = wrk.format(method, path, headers, body ~= "" and body or nil)
    end
  end
  at = math.random(math.max(#lines, 1))
end

function request()
  if fresh then
    local name = string.format("%016x%016x", math.random(2 ^ 48), math.random(2 ^ 48))
    return wrk.format("POST", fresh, {}, name .. filler)
  end
  at = at % #lines + 1
  return lines[at]
end

function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format('\n{"requests": %d, "failed": %d, "microseconds": %d, "p50": %d, "p99": %d}\n',
    summary.requests, failed, summary.duration, latency:percentile(50), latency:percentile(99)))
end

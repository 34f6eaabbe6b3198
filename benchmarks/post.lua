-- For wrk: wrk ... -s post.lua URL -- FILE. Sends the whole requests of FILE, made by load.py, in
-- turn, as they are; prints what came of it as JSON.

local requests, last = {}, 0

function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  for nbytes in file:lines() do
    requests[#requests + 1] = file:read(tonumber(nbytes))
  end
  file:close()
end

function request()
  last = last % #requests + 1
  return requests[last]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\n{"requests": %d, "seconds": %.6f, "p50_s": %.9f, "p99_s": %.9f, "failed": %d}\n',
    summary.requests, summary.duration / 1e6,
    latency:percentile(50) / 1e6, latency:percentile(99) / 1e6,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout
  ))
end

-- For wrk: wrk ... -s post.lua URL -- BODY-FILE. Posts the file; prints what came of it as JSON.

function init(arguments)
  local file = assert(io.open(arguments[1], "rb"))
  wrk.method, wrk.body = "POST", file:read("*a")
  file:close()
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

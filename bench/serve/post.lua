-- wrk's script: POST a file. Arguments: its path, its content type. Prints one line of JSON at the end.

function init(args)
  local file = assert(io.open(args[1], "rb"))
  wrk.method = "POST"
  wrk.body = file:read("*a")
  wrk.headers["Content-Type"] = args[2]
  file:close()
end

function done(summary, latency, requests)
  local errors = summary.errors
  local line = '{"answers": %d, "rejected": %d, "broken": %d, "seconds": %.6f, "p50": %.6f, "p99": %.6f}\n'
  local broken = errors.connect + errors.read + errors.write + errors.timeout
  io.write(line:format(summary.requests, errors.status, broken, summary.duration / 1e6,
    latency:percentile(50) / 1e6, latency:percentile(99) / 1e6))
end

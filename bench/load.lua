-- wrk: requests out of a file of "METHOD path" lines, turning; each thread begins at another line. BODY: bytes of every body.
local function lines(path)
   local t = {}
   for line in io.lines(path) do t[#t + 1] = line end
   return t
end

local n_threads = 0
function setup(thread)
   thread:set("number", n_threads)
   n_threads = n_threads + 1
end

function init(args)
   local body, length = nil, tonumber(args[2])
   if length > 0 then
      math.randomseed(number + 1)
      local piece = {}
      for i = 1, 1024 do piece[i] = string.char(math.random(0, 255)) end
      body = string.rep(table.concat(piece), math.ceil(length / 1024)):sub(1, length)
   end
   requests = {}
   for i, line in ipairs(lines(args[1])) do
      local method, path = line:match("^(%S+) (%S+)$")
      requests[i] = wrk.format(method, path, nil, body)
   end
   at = math.floor(number * #requests / 2)
end

function request()
   at = at % #requests + 1
   return requests[at]
end

function done(summary, latency)
   local e = summary.errors
   io.stderr:write(string.format('{"requests":%d,"us":%d,"status":%d,"socket":%d,"p50_us":%d,"p99_us":%d,"bytes":%d}\n', summary.requests,
      summary.duration, e.status, e.connect + e.read + e.write + e.timeout, latency:percentile(50), latency:percentile(99), summary.bytes))
end

#include "service/store/redis_scripts.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/check.h"
#include "service/store/lease.h"

namespace tidepool::service {
namespace {

// This text is put before every script. Its function whole() formats large numbers without an
// exponent, unlike Lua.
constexpr char kCommon[] = R"(
local call = redis.call
local function whole(x) return string.format('%.0f', x) end
local function now()
  local t = call('TIME')
  return t[1] * 1000000 + t[2]
end
-- 0 if it is not a number; the seal detects the damage.
local function number(field) return tonumber(call('HGET', KEYS[1], field) or '0') or 0 end
-- As HoldsLease.
local function holds(until_us, at) return until_us > at and until_us <= at + max_lease end
local function leased() return holds(number('lease_until_us'), now()) end
local function info(key)
  return call('HMGET', key, 'id', 'principal', 'model', 'digest', 'kind', 'create_us', 'update_us',
              'tokens', 'turns', 'epoch', 'lease_until_us', 'seq')
end
local function owned(principal)
  return principal == '*' or '=' .. (call('HGET', KEYS[1], 'principal') or '') == principal
end
local function tied(field, request)
  local value = call('HGET', KEYS[1], field)
  if not value or value:sub(-#request - 1) ~= '\n' .. request then return '' end
  return value:sub(1, -#request - 2)
end
local function drop_lease() call('HSET', KEYS[1], 'lease_request', '', 'lease_until_us', '0') end

-- Hashes (sha1_chain.h): lc and xc are the chains of the log and of the running text. t<N>:i covers
-- a turn's input; t<N>:h and th cover the turns that have ended. The seal covers these and the rest.
local sha = redis.sha1hex
local block = 256
local function packed(values)
  local parts = {}
  for i = 1, #values do parts[i] = #(values[i] or '') .. ':' .. (values[i] or '') end
  return table.concat(parts)
end
local function chain(state, key, from, to)
  for at = from - from % block, to - block, block do
    state = sha(state .. call('GETRANGE', key, at, at + block - 1))
  end
  return state
end
local function rest_of(key, length)
  if length % block == 0 then return '' end
  return call('GETRANGE', key, length - length % block, length - 1)
end
local function digest_of(text)
  local state, length = '', #text
  for at = 0, length - block, block do state = sha(state .. text:sub(at + 1, at + block)) end
  return sha(state .. text:sub(length - length % block + 1))
end
local function input_hash(t)
  return sha(packed(call('HMGET', KEYS[1], t .. 'r', t .. 's', t .. 'o', t .. 'm', t .. 'b')))
end
local function turn_hash(before, t, answer)
  return sha(before .. (call('HGET', KEYS[1], t .. 'i') or '') ..
             packed(call('HMGET', KEYS[1], t .. 'e', t .. 'f', t .. 'n')) .. answer)
end
-- What a seal covers, of the session with these three keys.
local function body(session, log, text)
  local f = call('HMGET', session, 'id', 'principal', 'model', 'digest', 'kind', 'create_us',
                 'update_us', 'tokens', 'turns', 'lc', 'xc', 'th', 'running')
  local running = ''
  if f[13] then
    local t = 't' .. f[13] .. ':'
    running = packed(call('HMGET', session, t .. 'r', t .. 'i', t .. 'n')) ..
              rest_of(text, call('STRLEN', text))
  end
  return sha(packed(f) .. rest_of(log, call('STRLEN', log)) .. '|' .. running)
end
-- Returns ok, damaged or old. old: a program without seals raised epoch or append since.
local function state_of(session, log, text)
  local f = call('HMGET', session, 'seal', 'epoch', 'append')
  if not f[1] then return 'old' end
  local sealed_epoch, sealed_append, hash = f[1]:match('^(%d+):(%d+):(%x+)$')
  if not hash then return 'damaged' end
  local epoch, append = tonumber(f[2] or '0'), tonumber(f[3] or '0')
  sealed_epoch, sealed_append = tonumber(sealed_epoch), tonumber(sealed_append)
  if not epoch or not append then return 'damaged' end
  if epoch > sealed_epoch or (epoch == sealed_epoch and append > sealed_append) then return 'old' end
  if epoch ~= sealed_epoch or append ~= sealed_append or body(session, log, text) ~= hash then
    return 'damaged'
  end
  return 'ok'
end
-- Its damage must not stop a call.
local function count_change() redis.pcall('HINCRBY', 'tidepool:store', 'commits', 1) end
local function seal()
  count_change()
  call('HSET', KEYS[1], 'seal', whole(number('epoch')) .. ':' .. whole(number('append')) .. ':' ..
       body(KEYS[1], KEYS[2], KEYS[3]))
end
-- Computes all hashes: of a new session, or of one that an older program wrote.
local function rebuild()
  local th, running = '', call('HGET', KEYS[1], 'running')
  for n = 0, number('turns') - 1 do
    local t = 't' .. whole(n) .. ':'
    call('HSET', KEYS[1], t .. 'i', input_hash(t))
    if running ~= whole(n) then
      th = turn_hash(th, t, digest_of(call('HGET', KEYS[1], t .. 'a') or ''))
      call('HSET', KEYS[1], t .. 'h', th)
    end
  end
  call('HSET', KEYS[1], 'th', th, 'lc', chain('', KEYS[2], 0, call('STRLEN', KEYS[2])),
       'xc', running and chain('', KEYS[3], 0, call('STRLEN', KEYS[3])) or '')
end
local function field(name) return call('HGET', KEYS[1], name) or '' end
local function finish_turn(finish)
  local n = call('HGET', KEYS[1], 'running')
  if not n then return end
  local t = 't' .. n .. ':'
  local answer = sha(field('xc') .. rest_of(KEYS[3], call('STRLEN', KEYS[3])))
  call('HSET', KEYS[1], t .. 'e', call('HGET', KEYS[1], 'tokens'),
       t .. 'a', call('GET', KEYS[3]) or '', t .. 'f', finish)
  local th = turn_hash(field('th'), t, answer)
  call('HSET', KEYS[1], t .. 'h', th, 'th', th, 'xc', '')
  call('HDEL', KEYS[1], 'running')
  call('DEL', KEYS[3])
end
-- The owner can be what is damaged.
local function of_another()
  if state_of(KEYS[1], KEYS[2], KEYS[3]) == 'damaged' then return {'DAMAGED'} end
  return {'NONE'}
end
-- MISSING if the index still has the session.
local function missing(index, id)
  if call('ZSCORE', index, id) then return {'MISSING'} end
  return {'NONE'}
end
local function whole_log()
  local turns = {}
  for n = 0, number('turns') - 1 do
    local t = 't' .. n .. ':'
    turns[n + 1] = call('HMGET', KEYS[1], t .. 'r', t .. 's', t .. 'o', t .. 'e', t .. 'm',
                        t .. 'a', t .. 'f', t .. 'b', t .. 'n', t .. 'i')
  end
  return {'OK', whole(now()), info(KEYS[1]), call('GET', KEYS[2]) or '',
          call('GET', KEYS[3]) or '', turns, state_of(KEYS[1], KEYS[2], KEYS[3]),
          call('HMGET', KEYS[1], 'lc', 'xc', 'th', 'running')}
end
)";

// KEYS: session, log, text, all, principal, updated, sequence.
// ARGV: id, principal, mark, maximum number of sessions of the principal (0: no limit), bytes of
// the tokens. Then the other fields of the session's hash, each as a name and a value. If create_us
// is not among them, it is the current time.
constexpr char kCreate[] = R"(
if call('EXISTS', KEYS[1]) == 1 then
  if call('HGET', KEYS[1], 'mark') == ARGV[3] then
    return {'OK', whole(now()), info(KEYS[1])}
  end
  return {'EXISTS'}
end
local most = tonumber(ARGV[4])
local have = call('ZCARD', KEYS[5])
if most > 0 and have >= most then return {'QUOTA', have} end
local seq = call('INCR', KEYS[7])
local at = whole(now())
call('HSET', KEYS[1], 'id', ARGV[1], 'principal', ARGV[2], 'mark', ARGV[3], 'kind', '0',
     'create_us', at, 'update_us', at, 'tokens', '0', 'turns', '0', 'epoch', '0',
     'lease_request', '', 'lease_until_us', '0', 'append', '0', 'seq', seq)
for i = 6, #ARGV, 2 do call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
if ARGV[5] ~= '' then call('SET', KEYS[2], ARGV[5]) end
rebuild()
seal()
call('ZADD', KEYS[4], seq, ARGV[1])
call('ZADD', KEYS[5], seq, ARGV[1])
call('ZADD', KEYS[6], call('HGET', KEYS[1], 'update_us'), ARGV[1])
return {'OK', whole(now()), info(KEYS[1])}
)";

// KEYS: session, log, text, all.
// ARGV: the owner ('=' and a principal, or '*' for any principal), id.
constexpr char kGet[] = R"(
if call('EXISTS', KEYS[1]) == 0 then return missing(KEYS[4], ARGV[2]) end
if not owned(ARGV[1]) then return of_another() end
return whole_log()
)";

// KEYS: an index.
// ARGV: return only sessions with a smaller seq than this ('+inf': all), the page size, the
// prefixes of three kinds of keys (session, log, text).
// Returns for each session its info, its state, its id and its seq. The id and the seq come from
// the index, because those in the session may be damaged or missing.
constexpr char kList[] = R"(
local ids = call('ZREVRANGEBYSCORE', KEYS[1], '(' .. ARGV[1], '-inf', 'WITHSCORES', 'LIMIT', 0,
                 ARGV[2])
local page = {'OK', whole(now())}
for i = 1, #ids / 2 do
  local id = ids[2 * i - 1]
  local entry = info(ARGV[3] .. id)
  entry[13] = state_of(ARGV[3] .. id, ARGV[4] .. id, ARGV[5] .. id)
  if not entry[1] then entry[13] = 'missing' end
  entry[14], entry[15] = id, ids[2 * i]
  page[i + 2] = entry
end
return page
)";

// KEYS: session, log, text, all, principal, updated, deleted, gone.
// ARGV: id, the owner ('=' and a principal).
constexpr char kDelete[] = R"(
if call('EXISTS', KEYS[7]) == 1 then return {'OK'} end
local exists = call('EXISTS', KEYS[1]) == 1
local damaged = not exists or state_of(KEYS[1], KEYS[2], KEYS[3]) == 'damaged'
-- A damaged session belongs to the principal whose list contains it.
local listed = call('ZSCORE', KEYS[5], ARGV[1])
if not exists and not listed then return {'NONE'} end
if exists and not owned(ARGV[2]) and not (damaged and listed) then return of_another() end
if not damaged and leased() then return {'BUSY', call('HGET', KEYS[1], 'lease_request')} end
call('DEL', KEYS[1], KEYS[2], KEYS[3])
for i = 4, 6 do call('ZREM', KEYS[i], ARGV[1]) end
count_change()
call('SET', KEYS[7], '1', 'EX', 60)
call('SET', KEYS[8], '1', 'EX', 600)
return {'OK'}
)";

// KEYS: an index.
constexpr char kCount[] = "return {'OK', call('ZCARD', KEYS[1])}";

// Replaces the log. Frees memory before it uses more, so that a session can be truncated when the
// memory is full.
// KEYS: session, log, text, updated.
// ARGV: id, the owner ('=' and a principal), mark, epoch, bytes of the tokens. Then names and
// values as in kCreate.
constexpr char kWrite[] = R"(
if call('EXISTS', KEYS[1]) == 0 then return {'NONE'} end
if not owned(ARGV[2]) then return of_another() end
if call('HGET', KEYS[1], 'mark') == ARGV[3] then return {'OK', whole(now()), info(KEYS[1])} end
if leased() then return {'BUSY', call('HGET', KEYS[1], 'lease_request')} end
local epoch = number('epoch')
if epoch ~= tonumber(ARGV[4]) then return {'CHANGED'} end
if state_of(KEYS[1], KEYS[2], KEYS[3]) == 'damaged' then return {'DAMAGED'} end
for n = 0, number('turns') - 1 do
  local t = 't' .. n .. ':'
  call('HDEL', KEYS[1], t .. 'r', t .. 's', t .. 'o', t .. 'e', t .. 'm', t .. 'a', t .. 'f',
       t .. 'b', t .. 'n', t .. 'i', t .. 'h')
end
call('HDEL', KEYS[1], 'running')
call('DEL', KEYS[2], KEYS[3])
for i = 6, #ARGV, 2 do call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
if ARGV[5] ~= '' then call('SET', KEYS[2], ARGV[5]) end
call('HSET', KEYS[1], 'mark', ARGV[3], 'epoch', whole(epoch + 1))
rebuild()
seal()
call('ZADD', KEYS[4], call('HGET', KEYS[1], 'update_us'), ARGV[1])
return {'OK', whole(now()), info(KEYS[1])}
)";

// KEYS: session, log, text, all.
// ARGV: the owner ('=' and a principal), request_id, length of the lease in microseconds, digest of
// the request's body, id.
constexpr char kBegin[] = R"(
if call('EXISTS', KEYS[1]) == 0 then return missing(KEYS[4], ARGV[5]) end
if not owned(ARGV[1]) then return of_another() end
local state = state_of(KEYS[1], KEYS[2], KEYS[3])
if state == 'damaged' then return {'DAMAGED'} end
local holder = call('HGET', KEYS[1], 'lease_request')
if leased() and holder ~= ARGV[2] then return {'BUSY', holder} end
local function another(field)
  local known = tied(field, ARGV[2])
  return known ~= '' and ARGV[4] ~= '' and known ~= ARGV[4]
end
if leased() and another('lease_body') then return {'ANOTHER'} end
for i = 0, number('turns') - 1 do
  if call('HGET', KEYS[1], 't' .. i .. ':r') == ARGV[2] then
    local t = 't' .. i .. ':'
    if not another(t .. 'b') then break end
    if state == 'ok' and input_hash(t) ~= call('HGET', KEYS[1], t .. 'i') then
      return {'DAMAGED'}
    end
    return {'ANOTHER'}
  end
end
if state == 'old' then rebuild() end
local n = number('turns') - 1
local t = 't' .. n .. ':'
if call('HGET', KEYS[1], t .. 'r') ~= ARGV[2] then
  finish_turn('4')
elseif number(t .. 'f') == 4 and number(t .. 'e') == number('tokens') then
  local before = n > 0 and field('t' .. whole(n - 1) .. ':h') or ''
  if turn_hash(before, t, digest_of(field(t .. 'a'))) ~= field('th') then return {'DAMAGED'} end
  call('SET', KEYS[3], call('HGET', KEYS[1], t .. 'a'))
  call('HSET', KEYS[1], t .. 'a', '', t .. 'f', '0', 'running', whole(n), 'th', before,
       'xc', chain('', KEYS[3], 0, call('STRLEN', KEYS[3])))
end
call('HSET', KEYS[1], 'epoch', whole(number('epoch') + 1), 'lease_request', ARGV[2],
     'lease_until_us', whole(now() + tonumber(ARGV[3])), 'append', '0',
     'lease_body', ARGV[4] .. '\n' .. ARGV[2])
seal()
return whole_log()
)";

// KEYS: session. ARGV: epoch, length of the lease in microseconds.
constexpr char kRenew[] = R"(
if call('HGET', KEYS[1], 'epoch') ~= ARGV[1] or call('HGET', KEYS[1], 'lease_request') == '' then
  return {'LOST'}
end
call('HSET', KEYS[1], 'lease_until_us', whole(now() + tonumber(ARGV[2])))
return {'OK'}
)";

// KEYS: session. ARGV: epoch.
constexpr char kRelease[] = R"(
if call('EXISTS', KEYS[1]) == 0 then return {'NONE'} end
if call('HGET', KEYS[1], 'epoch') == ARGV[1] then drop_lease() end
return {'OK'}
)";

// KEYS: session, log, text, updated, gone.
// ARGV: id, epoch, expected length, number of the append, output tokens, output text, finish,
// numerics_id ('': unchanged). The first append of a turn also has: request_id, kind, kept, input
// tokens, messages, digest of the request's body.
constexpr char kAppend[] = R"(
if call('EXISTS', KEYS[1]) == 0 and call('EXISTS', KEYS[5]) == 0 then return {'GONE'} end
if call('HGET', KEYS[1], 'epoch') ~= ARGV[2] then return {'LOST'} end
if number('append') >= tonumber(ARGV[4]) then return {'OK'} end
local tokens = number('tokens')
local kept = tonumber(ARGV[11] or '0')
if tokens ~= tonumber(ARGV[3]) or kept > tokens then return {'LENGTH', whole(tokens)} end
local state = state_of(KEYS[1], KEYS[2], KEYS[3])
if state == 'damaged' then return {'DAMAGED'} end
-- A server without memory refuses only a script's first write, and only if it needs memory.
call('HSET', KEYS[1], 'append', ARGV[4])
if state == 'old' then rebuild() end
local lc, at = field('lc'), tokens * 4
if ARGV[9] then
  local n = number('turns')
  if kept == 0 then
    call('DEL', KEYS[2])
  elseif kept < tokens then
    call('SET', KEYS[2], call('GETRANGE', KEYS[2], 0, kept * 4 - 1))
  end
  if kept < tokens then lc, at = chain('', KEYS[2], 0, kept * 4), kept * 4 end
  if ARGV[12] ~= '' then call('APPEND', KEYS[2], ARGV[12]) end
  tokens = kept + #ARGV[12] / 4
  local t = 't' .. n .. ':'
  call('HSET', KEYS[1], 'kind', ARGV[10], 'turns', whole(n + 1), 'running', whole(n),
       t .. 'r', ARGV[9], t .. 's', whole(kept), t .. 'o', whole(tokens), t .. 'e', '0',
       t .. 'm', ARGV[13], t .. 'a', '', t .. 'f', '0',
       t .. 'b', ARGV[14] .. '\n' .. ARGV[9])
  call('HDEL', KEYS[1], t .. 'n')
  call('HSET', KEYS[1], t .. 'i', input_hash(t), 'xc', '')
  call('DEL', KEYS[3])
end
local running = call('HGET', KEYS[1], 'running')
if ARGV[8] ~= '' and running then
  local t = 't' .. running .. ':'
  call('HSET', KEYS[1], t .. 'n', ARGV[8] .. '\n' .. call('HGET', KEYS[1], t .. 'r'))
end
if ARGV[5] ~= '' then call('APPEND', KEYS[2], ARGV[5]) end
tokens = tokens + #ARGV[5] / 4
if ARGV[6] ~= '' then
  local length = call('STRLEN', KEYS[3])
  call('APPEND', KEYS[3], ARGV[6])
  call('HSET', KEYS[1], 'xc', chain(field('xc'), KEYS[3], length, length + #ARGV[6]))
end
local changed = whole(now())
call('HSET', KEYS[1], 'tokens', whole(tokens), 'update_us', changed,
     'lc', chain(lc, KEYS[2], at, tokens * 4))
call('ZADD', KEYS[4], changed, ARGV[1])
if ARGV[7] ~= '0' then
  finish_turn(ARGV[7])
  drop_lease()
end
seal()
return {'OK'}
)";

// Deletes sessions that were not changed for some time and have no lease. Damaged sessions are not
// deleted. Returns OK, the number of deleted sessions, and the ids of the damaged ones.
// KEYS: updated, all.
// ARGV: the time in microseconds, the maximum number of sessions, the prefixes of four kinds of
// keys (session, log, text, principal), the latest possible time (in case the server's clock was
// set forward), the prefix of gone keys.
constexpr char kExpire[] = R"(
local at = math.min(now(), tonumber(ARGV[7]))
local latest = at - tonumber(ARGV[1])
local most = tonumber(ARGV[2])
local gone, kept, damaged = 0, 0, {}
local function expire(id)
  local session, log, text = ARGV[3] .. id, ARGV[4] .. id, ARGV[5] .. id
  if call('TYPE', session).ok ~= 'hash' or state_of(session, log, text) == 'damaged' then
    damaged[#damaged + 1] = id
    return false
  end
  local until_us = tonumber(call('HGET', session, 'lease_until_us') or '0') or 0
  if holds(until_us, at) or holds(until_us, now()) then return false end
  -- A damaged index does not make a session older.
  if tonumber(call('HGET', session, 'update_us')) > latest then return false end
  call('ZREM', ARGV[6] .. call('HGET', session, 'principal'), id)
  call('ZREM', KEYS[1], id)
  call('ZREM', KEYS[2], id)
  call('DEL', session, log, text)
  call('SET', ARGV[8] .. id, '1', 'EX', 600)
  return true
end
repeat
  local ids = call('ZRANGEBYSCORE', KEYS[1], '-inf', whole(latest), 'LIMIT', kept, 1000)
  for _, id in ipairs(ids) do
    if gone < most then
      if expire(id) then gone = gone + 1 else kept = kept + 1 end
    end
  end
until #ids < 1000 or gone >= most
if gone > 0 then count_change() end
local answer = {'OK', gone}
for i = 1, #damaged do answer[i + 2] = damaged[i] end
return answer
)";

// Compares some of the sessions with the indexes. Returns OK, the number of checked sessions, and
// the faults.
// KEYS: all, updated.
// ARGV: the prefixes of two kinds of keys (session, principal), the position in the index at which
// to start, the number of sessions to check.
constexpr char kVerify[] = R"(
local first = tonumber(ARGV[3])
local ids = call('ZRANGE', KEYS[1], first, first + tonumber(ARGV[4]) - 1)
local faults = {'OK', #ids}
for _, id in ipairs(ids) do
  local principal = call('HGET', ARGV[1] .. id, 'principal')
  local seq = tonumber(call('HGET', ARGV[1] .. id, 'seq') or '')
  if not principal then
    faults[#faults + 1] = id .. ': it is indexed and not there'
  elseif not call('ZSCORE', ARGV[2] .. principal, id) or not call('ZSCORE', KEYS[2], id) then
    faults[#faults + 1] = id .. ': it is missing from an index'
  elseif tonumber(call('ZSCORE', KEYS[1], id)) ~= seq or
         tonumber(call('ZSCORE', ARGV[2] .. principal, id)) ~= seq then
    faults[#faults + 1] = id .. ': it has a different position in an index'
  end
end
if first == 0 and call('ZCARD', KEYS[2]) ~= call('ZCARD', KEYS[1]) then
  faults[#faults + 1] = 'the indexes count different numbers of sessions'
  for _, id in ipairs(call('ZRANGE', KEYS[2], 0, -1)) do
    if not call('ZSCORE', KEYS[1], id) then
      faults[#faults + 1] = id .. ': it is missing from the index of all sessions'
    end
  end
end
return faults
)";

const char* TextOf(RedisScript script) {
  switch (script) {
    case RedisScript::kCreate:
      return kCreate;
    case RedisScript::kGet:
      return kGet;
    case RedisScript::kList:
      return kList;
    case RedisScript::kDelete:
      return kDelete;
    case RedisScript::kCount:
      return kCount;
    case RedisScript::kWrite:
      return kWrite;
    case RedisScript::kBegin:
      return kBegin;
    case RedisScript::kRenew:
      return kRenew;
    case RedisScript::kRelease:
      return kRelease;
    case RedisScript::kAppend:
      return kAppend;
    case RedisScript::kExpire:
      return kExpire;
    case RedisScript::kVerify:
      return kVerify;
  }
  CHECK(false) << "script " << static_cast<int>(script);
}

}  // namespace

std::string RedisScriptText(RedisScript script) {
  return absl::StrCat("local max_lease = ", absl::ToInt64Microseconds(kMaxLease), kCommon,
                      TextOf(script));
}

}  // namespace tidepool::service

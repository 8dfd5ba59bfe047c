#include "service/store/redis_scripts.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace tidepool::service {
namespace {

// Before every script. Lua writes large numbers with an exponent: whole() does not.
constexpr char kCommon[] = R"(
local call = redis.call
local function whole(x) return string.format('%.0f', x) end
local function now()
  local t = call('TIME')
  return t[1] * 1000000 + t[2]
end
local function number(field) return tonumber(call('HGET', KEYS[1], field) or '0') end
local function leased() return number('lease_until_us') > now() end
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
local function finish_turn(finish)
  local n = call('HGET', KEYS[1], 'running')
  if not n then return end
  call('HSET', KEYS[1], 't' .. n .. ':e', call('HGET', KEYS[1], 'tokens'),
       't' .. n .. ':a', call('GET', KEYS[3]) or '', 't' .. n .. ':f', finish)
  call('HDEL', KEYS[1], 'running')
  call('DEL', KEYS[3])
end
local function whole_log()
  local turns = {}
  for n = 0, number('turns') - 1 do
    local t = 't' .. n .. ':'
    turns[n + 1] = call('HMGET', KEYS[1], t .. 'r', t .. 's', t .. 'o', t .. 'e', t .. 'm',
                        t .. 'a', t .. 'f', t .. 'b', t .. 'n')
  end
  return {'OK', whole(now()), info(KEYS[1]), call('GET', KEYS[2]) or '',
          call('GET', KEYS[3]) or '', turns}
end
)";

// KEYS: session, log, text, all, principal, updated, sequence.
// ARGV: id, principal, mark, most sessions of the principal (0: any), tokens' bytes, then what else
// stands in the session's hash, name and value by turns. Without create_us there it is made now.
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
call('ZADD', KEYS[4], seq, ARGV[1])
call('ZADD', KEYS[5], seq, ARGV[1])
call('ZADD', KEYS[6], call('HGET', KEYS[1], 'update_us'), ARGV[1])
return {'OK', whole(now()), info(KEYS[1])}
)";

// KEYS: session, log, text. ARGV: '=' and the principal, or '*' for anybody's.
constexpr char kGet[] = R"(
if call('EXISTS', KEYS[1]) == 0 or not owned(ARGV[1]) then return {'NONE'} end
return whole_log()
)";

// KEYS: an index. ARGV: the least seq to leave out ('+inf': none), how many, the prefix of
// sessions' keys.
constexpr char kList[] = R"(
local ids = call('ZREVRANGEBYSCORE', KEYS[1], '(' .. ARGV[1], '-inf', 'LIMIT', 0, ARGV[2])
local page = {'OK', whole(now())}
for i, id in ipairs(ids) do page[i + 2] = info(ARGV[3] .. id) end
return page
)";

// KEYS: session, log, text, all, principal, updated, deleted. ARGV: id, '=' and the principal.
constexpr char kDelete[] = R"(
if call('EXISTS', KEYS[7]) == 1 then return {'OK'} end
if call('EXISTS', KEYS[1]) == 0 or not owned(ARGV[2]) then return {'NONE'} end
if leased() then return {'BUSY', call('HGET', KEYS[1], 'lease_request')} end
call('DEL', KEYS[1], KEYS[2], KEYS[3])
for i = 4, 6 do call('ZREM', KEYS[i], ARGV[1]) end
call('SET', KEYS[7], '1', 'EX', 60)
return {'OK'}
)";

// KEYS: an index.
constexpr char kCount[] = "return {'OK', call('ZCARD', KEYS[1])}";

// Another log in the place of the one that is there. It frees before it takes, so that a session can
// be cut where memory is full.
// KEYS: session, log, text, updated. ARGV: id, '=' and the principal, mark, epoch, tokens' bytes,
// then names and values as of kCreate.
constexpr char kWrite[] = R"(
if call('EXISTS', KEYS[1]) == 0 or not owned(ARGV[2]) then return {'NONE'} end
if call('HGET', KEYS[1], 'mark') == ARGV[3] then return {'OK', whole(now()), info(KEYS[1])} end
if leased() then return {'BUSY', call('HGET', KEYS[1], 'lease_request')} end
local epoch = number('epoch')
if epoch ~= tonumber(ARGV[4]) then return {'CHANGED'} end
for n = 0, number('turns') - 1 do
  local t = 't' .. n .. ':'
  call('HDEL', KEYS[1], t .. 'r', t .. 's', t .. 'o', t .. 'e', t .. 'm', t .. 'a', t .. 'f',
       t .. 'b', t .. 'n')
end
call('HDEL', KEYS[1], 'running')
call('DEL', KEYS[2], KEYS[3])
for i = 6, #ARGV, 2 do call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
if ARGV[5] ~= '' then call('SET', KEYS[2], ARGV[5]) end
call('HSET', KEYS[1], 'mark', ARGV[3], 'epoch', whole(epoch + 1))
call('ZADD', KEYS[4], call('HGET', KEYS[1], 'update_us'), ARGV[1])
return {'OK', whole(now()), info(KEYS[1])}
)";

// KEYS: session, log, text. ARGV: '=' and the principal, request_id, the lease in microseconds, the
// body's digest.
constexpr char kBegin[] = R"(
if call('EXISTS', KEYS[1]) == 0 or not owned(ARGV[1]) then return {'NONE'} end
local holder = call('HGET', KEYS[1], 'lease_request')
if leased() and holder ~= ARGV[2] then return {'BUSY', holder} end
local function another(field)
  local known = tied(field, ARGV[2])
  return known ~= '' and ARGV[4] ~= '' and known ~= ARGV[4]
end
if leased() and another('lease_body') then return {'ANOTHER'} end
for i = 0, number('turns') - 1 do
  if call('HGET', KEYS[1], 't' .. i .. ':r') == ARGV[2] then
    if another('t' .. i .. ':b') then return {'ANOTHER'} end
    break
  end
end
local n = number('turns') - 1
local t = 't' .. n .. ':'
if call('HGET', KEYS[1], t .. 'r') ~= ARGV[2] then
  finish_turn('4')
elseif number(t .. 'f') == 4 and number(t .. 'e') == number('tokens') then
  call('SET', KEYS[3], call('HGET', KEYS[1], t .. 'a'))
  call('HSET', KEYS[1], t .. 'a', '', t .. 'f', '0', 'running', whole(n))
end
call('HSET', KEYS[1], 'epoch', whole(number('epoch') + 1), 'lease_request', ARGV[2],
     'lease_until_us', whole(now() + tonumber(ARGV[3])), 'append', '0',
     'lease_body', ARGV[4] .. '\n' .. ARGV[2])
return whole_log()
)";

// KEYS: session. ARGV: epoch, the lease in microseconds.
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

// KEYS: session, log, text, updated. ARGV: id, epoch, expected length, the append's number, output
// tokens, output text, finish, numerics_id ('': as it was), and of a turn's first append: request_id,
// kind, kept, input tokens, messages, the body's digest.
constexpr char kAppend[] = R"(
if call('HGET', KEYS[1], 'epoch') ~= ARGV[2] then return {'LOST'} end
if number('append') >= tonumber(ARGV[4]) then return {'OK'} end
local tokens = number('tokens')
local kept = tonumber(ARGV[11] or '0')
if tokens ~= tonumber(ARGV[3]) or kept > tokens then return {'LENGTH', whole(tokens)} end
-- A server without memory refuses a script's first write only, and only one that takes memory.
call('HSET', KEYS[1], 'append', ARGV[4])
if ARGV[9] then
  local n = number('turns')
  if kept == 0 then
    call('DEL', KEYS[2])
  elseif kept < tokens then
    call('SET', KEYS[2], call('GETRANGE', KEYS[2], 0, kept * 4 - 1))
  end
  if ARGV[12] ~= '' then call('APPEND', KEYS[2], ARGV[12]) end
  tokens = kept + #ARGV[12] / 4
  local t = 't' .. n .. ':'
  call('HSET', KEYS[1], 'kind', ARGV[10], 'turns', whole(n + 1), 'running', whole(n),
       t .. 'r', ARGV[9], t .. 's', whole(kept), t .. 'o', whole(tokens), t .. 'e', '0',
       t .. 'm', ARGV[13], t .. 'a', '', t .. 'f', '0',
       t .. 'b', ARGV[14] .. '\n' .. ARGV[9])
  call('DEL', KEYS[3])
end
local running = call('HGET', KEYS[1], 'running')
if ARGV[8] ~= '' and running then
  local t = 't' .. running .. ':'
  call('HSET', KEYS[1], t .. 'n', ARGV[8] .. '\n' .. call('HGET', KEYS[1], t .. 'r'))
end
if ARGV[5] ~= '' then call('APPEND', KEYS[2], ARGV[5]) end
if ARGV[6] ~= '' then call('APPEND', KEYS[3], ARGV[6]) end
local at = whole(now())
call('HSET', KEYS[1], 'tokens', whole(tokens + #ARGV[5] / 4), 'update_us', at)
call('ZADD', KEYS[4], at, ARGV[1])
if ARGV[7] ~= '0' then
  finish_turn(ARGV[7])
  drop_lease()
end
return {'OK'}
)";

// Deletes what nobody changed for a time and no turn holds.
// KEYS: updated, all. ARGV: the time in microseconds, how many at most, the prefixes of keys:
// session, log, text, principal; the latest time that it can be, should the server's clock have
// been set forward.
constexpr char kExpire[] = R"(
local at = math.min(now(), tonumber(ARGV[7]))
local gone = 0
local most = tonumber(ARGV[2])
for _, id in ipairs(call('ZRANGEBYSCORE', KEYS[1], '-inf', whole(at - tonumber(ARGV[1])),
                            'LIMIT', 0, 1000)) do
  local session = ARGV[3] .. id
  if gone < most and tonumber(call('HGET', session, 'lease_until_us') or '0') <= at then
    call('ZREM', ARGV[6] .. (call('HGET', session, 'principal') or ''), id)
    call('ZREM', KEYS[1], id)
    call('ZREM', KEYS[2], id)
    call('DEL', session, ARGV[4] .. id, ARGV[5] .. id)
    gone = gone + 1
  end
end
return {'OK', gone}
)";

// Whether the indexes and some of the sessions agree. Behind OK stand how many it looked at and
// what is wrong. KEYS: all, updated. ARGV: the prefixes of keys: session, principal; where in the
// index to begin, how many to look at.
constexpr char kVerify[] = R"(
local first = tonumber(ARGV[3])
local ids = call('ZRANGE', KEYS[1], first, first + tonumber(ARGV[4]) - 1)
local faults = {'OK', #ids}
for _, id in ipairs(ids) do
  local principal = call('HGET', ARGV[1] .. id, 'principal')
  if not principal then
    faults[#faults + 1] = id .. ': it is indexed and not there'
  elseif not call('ZSCORE', ARGV[2] .. principal, id) or not call('ZSCORE', KEYS[2], id) then
    faults[#faults + 1] = id .. ': it is missing from an index'
  end
end
if first == 0 and call('ZCARD', KEYS[2]) ~= call('ZCARD', KEYS[1]) then
  faults[#faults + 1] = 'the indexes count different numbers of sessions'
end
return faults
)";

constexpr char kPrefix[] = "tidepool:";

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

std::string RedisScriptText(RedisScript script) { return absl::StrCat(kCommon, TextOf(script)); }

std::string RedisSessionKey(absl::string_view session_id) {
  return absl::StrCat(kPrefix, "session:", session_id);
}
std::string RedisLogKey(absl::string_view session_id) {
  return absl::StrCat(kPrefix, "log:", session_id);
}
std::string RedisTextKey(absl::string_view session_id) {
  return absl::StrCat(kPrefix, "text:", session_id);
}
std::string RedisPrincipalKey(absl::string_view principal) {
  return absl::StrCat(kPrefix, "principal:", principal);
}
std::string RedisDeletedKey(absl::string_view mark) {
  return absl::StrCat(kPrefix, "deleted:", mark);
}
std::string RedisAllKey() { return absl::StrCat(kPrefix, "all"); }
std::string RedisUpdatedKey() { return absl::StrCat(kPrefix, "updated"); }
std::string RedisSequenceKey() { return absl::StrCat(kPrefix, "sequence"); }
std::string RedisSchemaKey() { return absl::StrCat(kPrefix, "schema"); }

}  // namespace tidepool::service

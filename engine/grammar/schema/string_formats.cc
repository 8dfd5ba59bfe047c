#include "engine/grammar/schema/string_formats.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engine/grammar/regex_parser.h"
#include "kernels/base/check.h"

namespace tidepool::engine::grammar {
namespace {

struct Definition {
  absl::string_view name;  // patterns refer to the definition as <name>
  absl::string_view pattern;
};

// Each definition may use the definitions above it. The names are those of RFC 3986, 3987, 5321,
// 6570 and 3339.
constexpr Definition kParts[] = {
    {"leap", R"((?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00))"},
    {"date", R"((?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|)"
             R"((?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|<leap>-02-29))"},
    {"minute", R"((?:[01][0-9]|2[0-3]):[0-5][0-9])"},
    {"zone", R"((?:[Zz]|[+\-]<minute>))"},
    // A leap second is the last second of a day in UTC.
    {"time", R"((?:<minute>:[0-5][0-9](?:\.[0-9]+)?<zone>|)"
             R"(23:59:60(?:\.[0-9]+)?(?:[Zz]|[+\-]00:00)))"},
    {"day", R"((?:[0-9]+D))"},
    {"month", R"((?:[0-9]+M<day>?))"},
    {"year", R"((?:[0-9]+Y<month>?))"},
    {"second", R"((?:[0-9]+S))"},
    {"minutes", R"((?:[0-9]+M<second>?))"},
    {"hour", R"((?:[0-9]+H<minutes>?))"},
    {"clock", R"((?:T(?:<hour>|<minutes>|<second>)))"},
    {"hex", R"([0-9A-Fa-f])"},
    {"octet", R"((?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9]))"},
    {"ipv4", R"((?:<octet>\.<octet>\.<octet>\.<octet>))"},
    {"h16", R"(<hex>{1,4})"},
    {"ls32", R"((?:<h16>:<h16>|<ipv4>))"},
    {"ipv6", R"((?:(?:<h16>:){6}<ls32>|::(?:<h16>:){5}<ls32>|<h16>?::(?:<h16>:){4}<ls32>|)"
             R"((?:(?:<h16>:){0,1}<h16>)?::(?:<h16>:){3}<ls32>|)"
             R"((?:(?:<h16>:){0,2}<h16>)?::(?:<h16>:){2}<ls32>|)"
             R"((?:(?:<h16>:){0,3}<h16>)?::<h16>:<ls32>|(?:(?:<h16>:){0,4}<h16>)?::<ls32>|)"
             R"((?:(?:<h16>:){0,5}<h16>)?::<h16>|(?:(?:<h16>:){0,6}<h16>)?::))"},
    // At most 63 characters. Labels with -- after two characters are for names that are encoded
    // with Punycode. A regular expression cannot check that.
    {"alnum", R"([A-Za-z0-9])"},
    {"label", R"((?:<alnum>|<alnum>{2}|<alnum>[A-Za-z0-9\-]<alnum>|)"
              R"(<alnum>[A-Za-z0-9\-](?:<alnum>[A-Za-z0-9\-]|-<alnum>)[A-Za-z0-9\-]{0,58}<alnum>|)"
              R"(<alnum>[A-Za-z0-9\-]{2}<alnum>))"},
    {"hostname", R"((?:<label>(?:\.<label>)*))"},
    {"atext", R"([A-Za-z0-9!#$%&'*+\-/=?^_`{|}~])"},
    {"local", R"((?:<atext>+(?:\.<atext>+)*|)"
              R"("(?:[\x20\x21\x23-\x5B\x5D-\x7E]|\\[\x20-\x7E])*"))"},
    {"uuid", R"((?:<hex>{8}-<hex>{4}-<hex>{4}-<hex>{4}-<hex>{12}))"},
    // The part of a UUID after the version's digit. RFC 9562, section 4.1: the variant is 10 in
    // binary.
    {"variant", R"(<hex>{3}-[89ABab]<hex>{3}-<hex>{12})"},
    {"b64", R"([A-Za-z0-9+\/])"},
    {"b64url", R"([A-Za-z0-9_\-])"},
    {"ipv4length", R"((?:\/(?:[12]?[0-9]|3[0-2]))?)"},
    {"ipv6length", R"((?:\/(?:[1-9]?[0-9]|1[01][0-9]|12[0-8]))?)"},
    {"pointer", R"((?:\/(?:[^~\/]|[\n\r\u2028\u2029]|~[01])*)*)"},
    {"pct", R"((?:%<hex>{2}))"},
    {"sub", R"(!$&'()*+,;=)"},
    {"ucs", R"(\u00A0-\uD7FF\uF900-\uFDCF\uFDF0-\uFFEF\u{10000}-\u{EFFFD})"},
    {"private", R"(\uE000-\uF8FF\u{F0000}-\u{10FFFD})"},
    // <U> and <Q> are the characters that an IRI has beyond a URI.
    {"pchar", R"((?:[A-Za-z0-9\-._~<sub>:@<U>]|<pct>))"},
    {"path", R"((?:\/<pchar>*)*)"},
    {"literal", R"((?:\[(?:<ipv6>|[vV]<hex>+\.[A-Za-z0-9\-._~<sub>:]+)\]))"},
    {"host", R"((?:<literal>|(?:[A-Za-z0-9\-._~<sub><U>]|<pct>)*))"},
    {"authority", R"((?:(?:(?:[A-Za-z0-9\-._~<sub>:<U>]|<pct>)*@)?<host>(?::[0-9]*)?))"},
    {"absolute", R"((?:\/(?:<pchar>+<path>)?))"},
    {"tail", R"((?:\?(?:<pchar>|[\/?<Q>])*)?(?:#(?:<pchar>|[\/?])*)?)"},
    {"uri", R"((?:[A-Za-z][A-Za-z0-9+\-.]*:(?:\/\/<authority><path>|<absolute>|)"
            R"(<pchar>+<path>|)<tail>))"},
    {"relative", R"((?:(?:\/\/<authority><path>|<absolute>|)"
                 R"((?:[A-Za-z0-9\-._~<sub>@<U>]|<pct>)+<path>|)<tail>))"},
    {"varchar", R"((?:[A-Za-z0-9_]|<pct>))"},
    {"varspec", R"((?:<varchar>(?:\.?<varchar>)*(?::[1-9][0-9]{0,3}|\*)?))"},
};

constexpr Definition kFormats[] = {
    {"date", "<date>"},
    {"time", "<time>"},
    {"date-time", "<date>[Tt]<time>"},
    {"duration", "P(?:[0-9]+W|(?:<day>|<month>|<year>)<clock>?|<clock>)"},
    {"email", R"(<local>@(?:<hostname>|\[(?:<ipv4>|IPv6:<ipv6>)\]))"},
    {"hostname", "<hostname>"},
    {"ipv4", "<ipv4>"},
    {"ipv6", "<ipv6>"},
    {"uuid", "<uuid>"},
    {"json-pointer", "<pointer>"},
    {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|<pointer>)"},
    {"uri", "<uri>"},
    {"uri-reference", "<uri>|<relative>"},
    {"iri", "<uri>"},
    {"iri-reference", "<uri>|<relative>"},
    {"uri-template", R"((?:[!#$&(-;=?-\[\]_a-z~<ucs><private>]|<pct>|)"
                     R"(\{[+#.\/;?&]?<varspec>(?:,<varspec>)*\})*)"},
    // The formats of pydantic's types. The encodings are those of RFC 4648, and their unused bits
    // are 0.
    {"uuid1", "<hex>{8}-<hex>{4}-1<variant>"},
    {"uuid3", "<hex>{8}-<hex>{4}-3<variant>"},
    {"uuid4", "<hex>{8}-<hex>{4}-4<variant>"},
    {"uuid5", "<hex>{8}-<hex>{4}-5<variant>"},
    {"uuid6", "<hex>{8}-<hex>{4}-6<variant>"},
    {"uuid7", "<hex>{8}-<hex>{4}-7<variant>"},
    {"uuid8", "<hex>{8}-<hex>{4}-8<variant>"},
    {"base64", "(?:<b64>{4})*(?:<b64>[AQgw]==|<b64>{2}[AEIMQUYcgkosw048]=)?"},
    {"base64url", "(?:<b64url>{4})*(?:<b64url>[AQgw]==|<b64url>{2}[AEIMQUYcgkosw048]=)?"},
    {"ipv4interface", "<ipv4><ipv4length>"},
    {"ipv6interface", "<ipv6><ipv6length>"},
    {"ipvanyaddress", "<ipv4>|<ipv6>"},
    {"ipvanyinterface", "<ipv4><ipv4length>|<ipv6><ipv6length>"},
};

// The formats of OpenAPI and pydantic that every string matches.
constexpr absl::string_view kAnyText[] = {"binary", "double", "float",   "int32",
                                          "int64",  "path",   "password"};

std::string Expand(absl::string_view pattern, bool is_iri) {
  std::string text(pattern);
  const auto replace = [&text](absl::string_view name, absl::string_view by) {
    text = absl::StrReplaceAll(text, {{absl::StrCat("<", name, ">"), by}});
  };
  for (size_t i = std::size(kParts); i-- > 0;) {
    if (kParts[i].name == "pct") {
      replace("U", is_iri ? "<ucs>" : "");
      replace("Q", is_iri ? "<private>" : "");
      replace("ucs", kParts[i + 2].pattern);
      replace("private", kParts[i + 3].pattern);
      replace("sub", kParts[i + 1].pattern);
    }
    replace(kParts[i].name, kParts[i].pattern);
  }
  return text;
}

}  // namespace

std::optional<Regex> FormatRegex(absl::string_view format, RegexPool* pool) {
  for (const absl::string_view known : kAnyText) {
    if (known == format) return pool->AnyText();
  }
  for (const Definition& known : kFormats) {
    if (known.name != format) continue;
    const std::string pattern = Expand(known.pattern, format.substr(0, 3) == "iri");
    const absl::StatusOr<Regex> regex = ParseRegex(pattern, RegexScope::kWhole, pool);
    CHECK(regex.ok()) << regex.status().message();
    if (format == "email") {
      // RFC 5321, section 4.5.3.1: 64 octets before the @.
      const Regex local = pool->Repeat(pool->Bytes(ByteRange(0, 0x7F)), 1, 64);
      const Regex at = pool->Concat(local, pool->Concat(pool->Literal("@"), pool->AnyText()));
      return pool->And({*regex, at});
    }
    if (format != "hostname") return *regex;
    // RFC 1035, section 2.3.4: 255 octets with the lengths of the labels.
    return pool->And({*regex, pool->Repeat(pool->Bytes(ByteRange(0, 0x7F)), 1, 253)});
  }
  return std::nullopt;
}

std::string KnownFormats() {
  return absl::StrJoin(kFormats, ", ", [](std::string* out, const Definition& format) {
    absl::StrAppend(out, format.name);
  });
}

}  // namespace tidepool::engine::grammar

#include "service/cli/config.h"

#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "service/base/units.h"
#include "service/base/version.h"
#include "service/cli/flags.h"
#include "service/cli/model_flags.h"

namespace tidepool::service {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

const Environment kHome = {.home = "/home/u", .xdg_state_home = ""};

absl::StatusOr<ParsedConfig> Parse(const std::vector<std::string>& args) {
  return ParseConfig(args, kHome);
}

Config Good(const std::vector<std::string>& args) {
  absl::StatusOr<ParsedConfig> parsed = Parse(args);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? parsed->config : Config();
}

std::string Complaint(const std::vector<std::string>& args) {
  absl::StatusOr<ParsedConfig> parsed = Parse(args);
  EXPECT_FALSE(parsed.ok()) << "accepted";
  std::string message(parsed.status().message());
  EXPECT_THAT(message, Not(HasSubstr("\n")));
  return message;
}

std::string WriteConfig(const std::string& text) {
  std::string path =
      absl::StrCat(::testing::TempDir(), "/",
                   ::testing::UnitTest::GetInstance()->current_test_info()->name(), ".toml");
  std::ofstream(path) << text;
  return path;
}

TEST(ParseConfigTest, ServeTakesDefaults) {
  const Config config = Good({"serve", "--model", "m.gguf"});
  EXPECT_EQ(config.command, Command::kServe);
  EXPECT_EQ(config.model.path, "m.gguf");
  EXPECT_EQ(config.listen.grpc, "127.0.0.1:50051");
  EXPECT_EQ(config.store.location, "/home/u/.local/state/tidepool/sessions.db");
  EXPECT_EQ(config.model.kv_memory_bytes, 0);  // 0 means that it depends on the free memory
  EXPECT_EQ(config.serving.drain_timeout, absl::Seconds(30));
  EXPECT_EQ(config.model.threads, 0);
  EXPECT_EQ(config.model.kv_type, std::nullopt);
}

TEST(ParseConfigTest, StoreFollowsXdg) {
  const std::vector<std::string> args = {"front", "--worker", "localhost:1"};
  const auto store = [&](const Environment& environment) {
    return ParseConfig(args, environment)->config.store.location;
  };
  EXPECT_EQ(store({.home = "/home/u", .xdg_state_home = "/state"}), "/state/tidepool/sessions.db");
  EXPECT_EQ(store({.home = "/home/u", .xdg_state_home = "relative"}),
            "/home/u/.local/state/tidepool/sessions.db");
  EXPECT_THAT(ParseConfig(args, {}).status().message(), HasSubstr("--store"));
}

TEST(ParseConfigTest, KvDiskIsInTheCacheFolder) {
  const auto folder = [](std::vector<std::string> more, const Environment& environment) {
    std::vector<std::string> args = {"worker", "--model=m", "--kv-disk", "2GiB"};
    args.insert(args.end(), more.begin(), more.end());
    const Config config = ParseConfig(args, environment)->config;
    EXPECT_EQ(config.model.kv_disk_bytes, int64_t{2} << 30);
    return config.model.kv_disk_folder;
  };
  EXPECT_EQ(folder({}, kHome), "/home/u/.cache/tidepool");
  EXPECT_EQ(folder({}, {.home = "/home/u", .xdg_cache_home = "/c"}), "/c/tidepool");
  EXPECT_EQ(folder({"--cache-dir=/packs"}, {}), "/packs");
  EXPECT_THAT(ParseConfig({"worker", "--model=m", "--kv-disk=1GiB"}, {}).status().message(),
              HasSubstr("--cache-dir"));
  EXPECT_EQ(Good({"worker", "--model=m"}).model.kv_disk_folder, "");
  EXPECT_THAT(Complaint({"worker", "--model=m", "--kv-disk=0B"}), HasSubstr("--kv-disk"));
  EXPECT_THAT(Complaint({"front", "--worker=a:1", "--kv-disk=1GiB"}), HasSubstr("--kv-disk"));
}

TEST(ParseConfigTest, ValuesHaveUnits) {
  const Config config = Good({"serve", "--model=m", "--kv-memory", "512MiB", "--drain-timeout",
                              "1500ms", "--kv-type", "bf16", "--isa", "portable", "--max-sequences",
                              "7", "-t", "3", "-c", "100", "--max-concurrent-prefills", "2"});
  EXPECT_EQ(config.model.kv_memory_bytes, size_t{512} << 20);
  EXPECT_EQ(config.serving.drain_timeout, absl::Milliseconds(1500));
  EXPECT_EQ(config.model.kv_type, kernels::DType::kBF16);
  EXPECT_EQ(config.model.isa, kernels::Isa::kPortable);
  EXPECT_EQ(config.model.threads, 3);
  EXPECT_EQ(config.model.context, 100);
  EXPECT_EQ(config.serving.max_sequences, 7);
  EXPECT_EQ(config.serving.max_concurrent_prefills, 2);
  EXPECT_THAT(Complaint({"serve", "--model=m", "--kv-memory", "512"}),
              AllOf(HasSubstr("--kv-memory"), HasSubstr("512MiB")));
  EXPECT_EQ(Good({"worker", "--model=m", "--stall-timeout", "5m"}).serving.stall_timeout,
            absl::Minutes(5));
  EXPECT_THAT(Complaint({"worker", "--model=m", "--stall-timeout", "10ms"}),
              HasSubstr("accepted: 1s or more"));
  EXPECT_EQ(Good({"front", "--worker=a:1", "--drain-grace", "5s"}).serving.drain_grace,
            absl::Seconds(5));
  EXPECT_THAT(Complaint({"serve", "--model=m", "--drain-timeout", "30"}),
              HasSubstr("--drain-timeout"));
  EXPECT_THAT(Complaint({"serve", "--model=m", "--threads", "0"}), HasSubstr("from 1 to 1024"));
  EXPECT_EQ(Good({"serve", "--model=m", "--kv-type", "q8_0"}).model.kv_type, kernels::DType::kQ8_0);
  EXPECT_THAT(Complaint({"serve", "--model=m", "--kv-type", "q4_0"}),
              HasSubstr("not f32, f16, bf16 or q8_0"));
}

TEST(ParseConfigTest, LongNamesAreCutAndNearNone) {
  // Messages show at most 64 bytes of a name, and do not cut it inside a character.
  const std::string longest(64, 'x');
  EXPECT_EQ(Complaint({"serve", "--" + longest}), "unknown flag --" + longest);
  EXPECT_EQ(Complaint({"serve", "--" + longest + "x"}), "unknown flag --" + longest + "...");
  EXPECT_EQ(Complaint({"serve", "--" + longest.substr(1) + "\u00e9"}),
            "unknown flag --" + longest.substr(1) + "...");
  const std::string huge(1 << 20, 'x');
  EXPECT_THAT(Complaint({huge}), HasSubstr("unknown command " + longest + "...; tidepool --help"));
  EXPECT_THAT(Complaint({"serve", huge}),
              HasSubstr("\"" + longest + "...\": a value follows its flag"));
}

TEST(ParseConfigTest, UnknownNamesGetTheNearest) {
  EXPECT_EQ(Complaint({"serve", "--modle", "m"}), "unknown flag --modle (did you mean --model?)");
  EXPECT_EQ(Complaint({"serve", "--thread=2"}), "unknown flag --thread (did you mean --threads?)");
  EXPECT_THAT(Complaint({"serv", "--model", "m"}), HasSubstr("did you mean serve?"));
  EXPECT_EQ(Complaint({"serve", "--model", "m", "--zzzzzzzz"}), "unknown flag --zzzzzzzz");
  EXPECT_EQ(Complaint({"inspect", "--model", "m", "--listen", "x"}),
            "--listen is not a flag of tidepool inspect");
  EXPECT_THAT(Complaint({"inspect", "m.gguf"}), HasSubstr("--model FILE"));
}

TEST(ParseConfigTest, BenchTakesLists) {
  const Config plain = Good({"bench", "--model", "m"});
  EXPECT_THAT(plain.bench.prompt_tokens, ElementsAre(512));
  EXPECT_THAT(plain.bench.output_tokens, ElementsAre(128));
  EXPECT_THAT(plain.bench.batch_sizes, ElementsAre(1));
  const Config config =
      Good({"bench", "-m", "m", "-p", "64,0", "-n", "0", "-b", "1,4", "-b", "8", "-r", "9"});
  EXPECT_THAT(config.bench.prompt_tokens, ElementsAre(64, 0));
  EXPECT_THAT(config.bench.batch_sizes, ElementsAre(1, 4, 8));
  EXPECT_EQ(config.bench.repetitions, 9);
  EXPECT_THAT(Complaint({"bench", "-m", "m", "-p", "0", "-n", "0"}), HasSubstr("nothing"));
  EXPECT_THAT(Complaint({"bench", "-m", "m", "-b", "1,,2"}), HasSubstr("--batch"));
  EXPECT_THAT(Complaint({"bench", "-m", "m", "-b", "0"}), HasSubstr("1 to 4096"));
}

TEST(ParseConfigTest, BenchLoadsAServer) {
  const Config config =
      Good({"bench", "--server", "h:1", "--rate", "2.5", "-p", "8,9", "--priority", "-5,3",
            "--duration", "2m", "--warm-up", "0", "--retries", "2"});
  EXPECT_EQ(config.traffic.rate, 2.5);
  EXPECT_EQ(config.traffic.duration, absl::Minutes(2));
  EXPECT_EQ(config.traffic.warm_up, absl::ZeroDuration());
  EXPECT_EQ(config.traffic.retries, 2);
  EXPECT_THAT(config.traffic.priorities, ElementsAre(-5, 3));
  EXPECT_THAT(config.bench.prompt_tokens, ElementsAre(8, 9));
  EXPECT_THAT(config.bench.output_tokens, ElementsAre(128));
  EXPECT_EQ(Good({"bench", "--server", "h:1", "--concurrency", "7"}).traffic.concurrency, 7);
  const auto complain = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"bench", "--server", "h:1"});
    return Complaint(more);
  };
  EXPECT_THAT(complain({}), HasSubstr("--rate"));
  EXPECT_THAT(complain({"--rate", "1", "--concurrency", "1"}), HasSubstr("--concurrency"));
  EXPECT_THAT(complain({"--rate", "0"}), HasSubstr("greater than 0 and at most 1000000 (got 0)"));
  EXPECT_THAT(complain({"--rate", "1", "-n", "0"}), HasSubstr("--output-tokens"));
  EXPECT_THAT(complain({"--rate", "1", "--priority", "101"}), HasSubstr("-100 to 100"));
  const std::vector<std::pair<std::string, std::string>> of_models = {
      {"--model", "m"}, {"--threads", "2"}, {"--expert-memory", "1GiB"}, {"--batch", "2"}};
  for (const auto& [flag, value] : of_models) {
    EXPECT_THAT(complain({"--rate", "1", flag, value}), HasSubstr(flag + " has no effect"));
  }
  EXPECT_THAT(Complaint({"bench", "-m", "m", "--rate", "1"}), HasSubstr("--rate needs --server"));
}

TEST(ParseConfigTest, EachValueOnce) {
  EXPECT_EQ(Complaint({"serve", "--model"}), "--model needs a value, as in --model FILE");
  EXPECT_EQ(Complaint({"serve", "-t"}), "--threads needs a value, as in --threads N");
  EXPECT_EQ(Complaint({"serve", "--model", "a", "-m", "b"}),
            "--model is given 2 times; give it once");
  EXPECT_EQ(Good({"serve", "--model", "a", "--json", "--json"}).output.format, OutputFormat::kJson);
}

TEST(ParseConfigTest, FlagsHaveTheUsualSpellings) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"serve", "--model", "m", "--threads", "3"},
        {"serve", "--model=m", "--threads=3"},
        {"serve", "-m", "m", "-t", "3"},
        {"serve", "-mm", "-t3"}}) {
    EXPECT_EQ(Good(args).model.path, "m") << absl::StrJoin(args, " ");
    EXPECT_EQ(Good(args).model.threads, 3) << absl::StrJoin(args, " ");
  }
  EXPECT_EQ(Good({"serve", "--model=a=b"}).model.path, "a=b");
  EXPECT_EQ(Good({"serve", "-m", "m", "--json=false"}).output.format, OutputFormat::kText);
  EXPECT_EQ(Good({"quantize", "--type", "F16", "--", "-a", "-b"}).model.path, "-a");
  EXPECT_EQ(Complaint({"serve", "--model="}), "--model: the value is empty");
  EXPECT_THAT(Complaint({"serve", "-m", "m", "--json=maybe"}), HasSubstr("true or false"));
  EXPECT_THAT(Complaint({"serve", "-m", "m", "-z3"}), HasSubstr("unknown flag -z3"));
  EXPECT_THAT(Complaint({"serve", "-m", "m", "-hx"}), HasSubstr("unknown flag -hx"));
  EXPECT_THAT(Complaint({"serve", "-m", "m", "-"}), HasSubstr("unexpected argument \"-\""));
  EXPECT_THAT(Complaint({"serve", "--first", "--second"}), HasSubstr("--first"));
}

TEST(ParseConfigTest, HelpWinsOverOtherArguments) {
  for (const std::vector<std::string>& args :
       {std::vector<std::string>{"serve", "--help"}, {"serve", "--nonsense", "-h", "word"}}) {
    ASSERT_TRUE(Parse(args).ok()) << Parse(args).status();
    EXPECT_TRUE(Parse(args)->print.has_value());
  }
}

TEST(ParseConfigTest, FutureNamesSayTheyAreNotServedYet) {
  for (absl::string_view flag : FutureFlags()) {
    absl::StatusOr<ParsedConfig> parsed =
        Parse({"serve", "--model", "m", absl::StrCat("--", flag), "x"});
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kUnimplemented) << flag;
    EXPECT_EQ(parsed.status().message(), absl::StrCat("--", flag, " is not available yet"));
  }
  for (absl::string_view command : FutureCommands()) {
    EXPECT_EQ(Parse({std::string(command)}).status().message(),
              absl::StrCat("command ", command, " is not available yet"));
  }
}

TEST(ParseConfigTest, ListeningPastThisMachineNeedsConsent) {
  for (const std::string address :
       {"0.0.0.0:50051", "[::]:50051", "10.1.2.3:1", "127.example.org:1"}) {
    EXPECT_THAT(Complaint({"worker", "--model", "m", "--listen", address}),
                AllOf(HasSubstr(address), HasSubstr("--auth-token-file"),
                      HasSubstr("--allow-unauthenticated")));
    EXPECT_EQ(Good({"worker", "--model", "m", "--allow-unauthenticated", "--listen", address})
                  .listen.grpc,
              address);
  }
  for (const std::string address : {"127.0.0.1:0", "127.8.0.1:9", "localhost:1", "[::1]:50051"}) {
    EXPECT_EQ(Good({"worker", "--model", "m", "--listen", address}).listen.grpc, address);
  }
  for (const std::string address :
       {"50051", ":50051", "::1:50051", "localhost:", "localhost:65536", "[::1:5"}) {
    EXPECT_THAT(Complaint({"worker", "--model", "m", "--listen", address}), HasSubstr("HOST:PORT"));
  }
}

TEST(ParseConfigTest, TokensLetAServerListenAnywhere) {
  const Config config = Good({"serve", "--model", "m", "--listen", "0.0.0.0:1", "--http",
                              "0.0.0.0:2", "--auth-token-file", "tokens"});
  EXPECT_EQ(config.security.auth_token_file, "tokens");
  EXPECT_THAT(Complaint({"serve", "--model", "m", "--http", "0.0.0.0:2"}), HasSubstr("--http"));
  EXPECT_THAT(Complaint({"worker", "--model", "m", "--auth-token-file", "tokens",
                         "--allow-unauthenticated"}),
              HasSubstr("contradict"));
}

TEST(ParseConfigTest, Aliases) {
  EXPECT_EQ(Good({"serve", "--model", "m", "--alias", "a b", "--alias", "c", "--alias", "c"})
                .model.aliases,
            (std::vector<std::string>{"a b", "c"}));
  EXPECT_THAT(Complaint({"serve", "--model", "m", "--alias", "a\nb"}), HasSubstr("one line"));
  EXPECT_THAT(Complaint({"serve", "--model", "m", "--alias", ""}), HasSubstr("--alias"));
  const std::pair<const char*, const char*> stems[] = {
      {"tiny-q8.gguf", "tiny-q8"},
      {"/models/tiny.Q4_K.gguf", "tiny.Q4_K"},
      {"models/big-00001-of-00003.gguf", "big"},
      {"models/big-0001-of-00003.gguf", "big-0001-of-00003"},
      {"folder/", "folder"},
      {"a\tb", "a b"},
  };
  for (const auto& [path, stem] : stems) {
    EXPECT_EQ(AliasesOf({}, path), std::vector<std::string>{stem}) << path;
  }
  EXPECT_EQ(AliasesOf({"x"}, "m.gguf"), std::vector<std::string>{"x"});
}

TEST(ParseConfigTest, OriginsAndHostsOfWebPages) {
  const Config config =
      Good({"serve", "--model", "m", "--cors-origin", "https://a.example", "--cors-origin",
            "tauri://localhost", "--http-host", "llm.example", "--http-host", "b"});
  EXPECT_TRUE(config.security.cors_origins.Allows("https://a.example"));
  EXPECT_TRUE(config.security.cors_origins.Allows("tauri://localhost"));
  EXPECT_EQ(config.security.http_hosts, (std::vector<std::string>{"llm.example", "b"}));
  EXPECT_TRUE(Good({"front", "--worker", "h:1", "--auth-token-file", "t", "--cors-origin", "*"})
                  .security.cors_origins.any());
  const auto complaint = [](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"serve", "--model", "m"});
    return Complaint(flags);
  };
  EXPECT_THAT(complaint({"--cors-origin", "*"}), HasSubstr("--auth-token-file FILE"));
  EXPECT_THAT(complaint({"--cors-origin", "*", "--allow-unauthenticated"}),
              HasSubstr("--auth-token-file FILE"));
  EXPECT_THAT(complaint({"--cors-origin", "a.example"}), HasSubstr("SCHEME://HOST"));
  EXPECT_THAT(complaint({"--cors-origin", "https://a.example", "--http", "off"}),
              HasSubstr("--http is off"));
  EXPECT_THAT(complaint({"--http-host", "a:1"}), HasSubstr("omit scheme, port"));
  EXPECT_THAT(complaint({"--http-host", "a", "--http", "off"}), HasSubstr("--http is off"));
  EXPECT_THAT(complaint({"--http-host", "a", "--http", "0.0.0.0:1", "--auth-token-file", "t"}),
              HasSubstr("has no effect"));
  EXPECT_THAT(complaint({"--http-host", "a", "--allow-unauthenticated"}),
              HasSubstr("has no effect"));
}

TEST(ParseConfigTest, ConnectionsHaveAnAgeThatGrpcCanCount) {
  const auto with_age = [](const std::string& age) {
    return std::vector<std::string>{
        "serve", "--model", "m", "--tls-cert", "c", "--tls-key", "k", "--max-connection-age", age};
  };
  EXPECT_EQ(Good(with_age("1s")).security.max_connection_age, absl::Seconds(1));
  EXPECT_EQ(Good(with_age("576h")).security.max_connection_age, absl::Hours(576));
  for (const std::string age : {"999ms", "576h1s", "2147483647ms", "100000h"}) {
    EXPECT_THAT(Complaint(with_age(age)),
                AllOf(HasSubstr("--max-connection-age"), HasSubstr("1s to 576h")));
  }
}

TEST(ParseConfigTest, TokenNewTakesALine) {
  const Config config =
      Good({"token", "new", "--principal", "a", "--role", "admin", "--rate", "60", "--concurrency",
            "4", "--max-priority", "9", "--expires", "2027-01-01"});
  EXPECT_EQ(config.input.action, "new");
  EXPECT_EQ(config.token.caller.principal, "a");
  EXPECT_EQ(config.token.caller.role, Role::kAdmin);
  EXPECT_EQ(config.token.caller.limits,
            (PrincipalLimits{.per_minute = 60, .at_once = 4, .max_priority = 9}));
  EXPECT_EQ(absl::FormatTime(config.token.expires, absl::UTCTimeZone()),
            "2027-01-01T00:00:00+00:00");
  const Caller usual = Good({"token", "new", "--principal", "a"}).token.caller;
  EXPECT_EQ(usual.role, Role::kUser);
  EXPECT_EQ(usual.limits.max_priority, 0);
  EXPECT_THAT(Complaint({"token", "new"}), HasSubstr("--principal"));
  EXPECT_THAT(Complaint({"token", "--principal", "a"}), HasSubstr("token new"));
  EXPECT_THAT(Complaint({"token", "new", "--principal", "a b"}), HasSubstr("a principal must be"));
  EXPECT_THAT(Complaint({"token", "new", "--principal", "a", "--role", "root"}),
              HasSubstr("user, admin or front"));
}

TEST(ParseConfigTest, TheFileSetsFlagsThatTheCommandLineLacks) {
  const std::string path = WriteConfig(
      "model = \"file.gguf\"\nthreads = 3\nkv-memory = \"64MiB\"\nexact = true\ndrain-timeout = "
      "\"5s\"\n");
  const Config config = Good({"serve", "--config", path, "--model", "line.gguf"});
  EXPECT_EQ(config.model.path, "line.gguf");
  EXPECT_EQ(config.model.threads, 3);
  EXPECT_EQ(config.model.kv_memory_bytes, size_t{64} << 20);
  EXPECT_EQ(config.model.precision, kernels::Precision::kExact);
  EXPECT_EQ(config.serving.drain_timeout, absl::Seconds(5));
}

TEST(ParseConfigTest, ListsInAFile) {
  const std::string path =
      WriteConfig("model = \"m\"\ntokens = [1, 2, 3]\nstop = [\"a\", \"b\"]\ntemperature = 0.7\n");
  const Config config = Good({"generate", "--config", path});
  EXPECT_THAT(config.input.tokens, ElementsAre(1, 2, 3));
  EXPECT_THAT(config.generation.stop, ElementsAre("a", "b"));
  EXPECT_FLOAT_EQ(*config.generation.temperature, 0.7f);
}

TEST(ParseConfigTest, FileErrorsNameFileAndLine) {
  const auto complaint = [](const std::string& text) {
    return Complaint({"serve", "--config", WriteConfig(text)});
  };
  EXPECT_THAT(
      complaint("model = \"m\"\n\nmodle = \"m\"\n"),
      AllOf(HasSubstr(".toml: line 3: unknown key modle"), HasSubstr("did you mean model?")));
  EXPECT_THAT(complaint("ranks = 2\n"), HasSubstr("ranks is not available yet"));
  EXPECT_THAT(complaint("threads = \"many\"\n"),
              HasSubstr("line 1: threads: \"many\" is not a whole number"));
  EXPECT_THAT(complaint("= 3\n"), HasSubstr("line 1: not TOML"));
  EXPECT_THAT(complaint("\"a\\nb\" = 1\n"), HasSubstr("unknown key a b"));
  EXPECT_THAT(complaint("[serve]\nmodel = \"m\"\n"), HasSubstr("without sections"));
  EXPECT_THAT(complaint("config = \"x\"\n"), HasSubstr("cannot be set in a file"));
  EXPECT_THAT(Complaint({"serve", "--config", "/nonexistent.toml"}),
              HasSubstr("/nonexistent.toml"));
}

TEST(ParseConfigTest, GenerateTakesOneInput) {
  EXPECT_THAT(Complaint({"generate", "--model", "m"}), HasSubstr("exactly one of --prompt"));
  EXPECT_THAT(Complaint({"generate", "--model", "m", "--prompt", "a", "--tokens", "1"}),
              HasSubstr("exactly one"));
  EXPECT_THAT(Complaint({"generate", "--prompt", "a"}), HasSubstr("--model FILE is missing"));
  EXPECT_THAT(Complaint({"generate", "--server", "localhost:1", "--threads", "2", "--prompt", "a"}),
              HasSubstr("--threads has no effect on a server"));
  EXPECT_THAT(Complaint({"generate", "--model", "m", "--session", "s", "--prompt", "a"}),
              HasSubstr("--server"));
  EXPECT_EQ(*Good({"generate", "--model", "m", "--prompt", "[1,2]"}).input.prompt, "[1,2]");
  EXPECT_EQ(*Good({"generate", "--model", "m", "--prompt", "--odd -one"}).input.prompt,
            "--odd -one");
}

TEST(ParseConfigTest, SamplingIsChecked) {
  const std::vector<std::string> base = {"generate", "--model", "m", "--prompt", "a"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), base.begin(), base.end());
    return more;
  };
  for (const std::string bad : {"nan", "inf", "-1", "101", "x", ""}) {
    EXPECT_THAT(Complaint(with({"--temperature", bad})), HasSubstr("--temperature: "));
  }
  EXPECT_THAT(Complaint(with({"--max-tokens", "0"})), HasSubstr("at least 1"));
  EXPECT_THAT(Complaint(with({"--max-tokens", "-5"})), HasSubstr("\"-5\""));
  EXPECT_THAT(Complaint(with({"--seed", "1", "--seed", "2"})), HasSubstr("--seed"));
  const Config config =
      Good(with({"--stop", "x", "--stop", "y", "--logit-bias", "5=-1.5", "-n", "7"}));
  EXPECT_THAT(config.generation.stop, ElementsAre("x", "y"));
  EXPECT_THAT(config.generation.logit_bias, ElementsAre(Pair(5, -1.5f)));
  EXPECT_EQ(config.generation.max_tokens, 7);
  const Config dry =
      Good(with({"--dry-penalty-last-n", "-1", "--dry-sequence-breaker", "x", "--bad-word", "y"}));
  EXPECT_EQ(dry.generation.dry.penalty_last_n, -1);
  EXPECT_THAT(dry.generation.dry.sequence_breakers, ElementsAre("x"));
  EXPECT_THAT(dry.generation.bad_words, ElementsAre("y"));
}

TEST(ParseConfigTest, ExactKeepsKvInF32) {
  EXPECT_THAT(Complaint({"serve", "--model", "m", "--exact", "--kv-type", "f16"}),
              HasSubstr("--kv-type"));
  EXPECT_EQ(Good({"serve", "--model", "m", "--exact", "--kv-type", "f32"}).model.precision,
            kernels::Precision::kExact);
}

TEST(ParseConfigTest, EveryCommandHasHelpWithItsFlags) {
  for (const CommandSpec& spec : Commands()) {
    absl::StatusOr<ParsedConfig> parsed = Parse({std::string(spec.name), "--help"});
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    ASSERT_TRUE(parsed->print.has_value());
    EXPECT_THAT(*parsed->print, HasSubstr(std::string(spec.example)));
    for (const FlagSpec& flag : Flags()) {
      const std::string spelling = absl::StrCat("--", flag.name);
      if (!flag.IsOf(spec.command)) continue;
      EXPECT_THAT(*parsed->print, HasSubstr(spelling));
    }
  }
  EXPECT_THAT(*Parse({"--help"})->print, HasSubstr("inspect"));
  EXPECT_THAT(*Parse({"--version"})->print, HasSubstr(kVersion));
}

// The example of each command must be a valid command line.
TEST(ParseConfigTest, ExamplesParse) {
  for (const CommandSpec& spec : Commands()) {
    std::vector<std::string> args;
    std::string word;
    bool quoted = false;
    // The part after " >" is for the shell.
    const absl::string_view line = spec.example.substr(0, spec.example.find(" >"));
    for (char c : absl::StrCat(line, " ")) {
      if (c == '"') {
        quoted = !quoted;
      } else if (c == ' ' && !quoted) {
        args.push_back(word);
        word.clear();
      } else {
        word.push_back(c);
      }
    }
    args.erase(args.begin());
    EXPECT_TRUE(Parse(args).ok()) << spec.example << ": " << Parse(args).status();
  }
}

TEST(UnitsTest, Sizes) {
  EXPECT_EQ(*ParseSize("1.5GiB"), size_t{3} << 29);
  EXPECT_EQ(*ParseSize("2GB"), 2000000000u);
  EXPECT_EQ(*ParseSize("4096B"), 4096u);
  for (const char* bad : {"", "GiB", "-1GiB", "nanGiB", "1e30TiB", "1 gib", "1Gi", "50%", "infB"}) {
    EXPECT_FALSE(ParseSize(bad).ok()) << bad;
  }
}

TEST(UnitsTest, Times) {
  EXPECT_EQ(*ParseTime("1h30m"), absl::Minutes(90));
  EXPECT_EQ(*ParseTime("0"), absl::ZeroDuration());
  for (const char* bad : {"", "30", "-1s", "inf", "s", "1 s"}) {
    EXPECT_FALSE(ParseTime(bad).ok()) << bad;
  }
}

TEST(UnitsTest, TokenIds) {
  EXPECT_THAT(*ParseTokenIds("1,2,3"), ElementsAre(1, 2, 3));
  EXPECT_THAT(*ParseTokenIds("[4, 5]"), ElementsAre(4, 5));
  for (const char* bad : {"", "1,,2", "-1", "1.5", "99999999999", "[1", "a"}) {
    EXPECT_FALSE(ParseTokenIds(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace tidepool::service

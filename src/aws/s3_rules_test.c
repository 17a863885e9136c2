/* CORS and lifecycle: configurations that are valid or not, and what they say. */
#include "aws/s3_cors.h"
#include "aws/s3_lifecycle.h"

#include "base/test.h"
#include "base/time.h"

/* ---- CORS ---- */

#define LIST(...)                                                                     \
    {                                                                                 \
        .v = (struct str[]){__VA_ARGS__},                                             \
        .n = sizeof((struct str[]){__VA_ARGS__}) / sizeof(struct str), .is_set = true \
    }

static struct s3_cors_entry rules[] = {
    {.methods = LIST({"GET", 3}), .origins = LIST({"*suffix", 7})},
    {.methods = LIST({"GET", 3}), .origins = LIST({"start*end", 9})},
    {.methods = LIST({"GET", 3}), .origins = LIST({"prefix*", 7})},
    {.methods = LIST({"GET", 3}), .origins = LIST({"ab*ba", 5})},
    {.methods = LIST({"PUT", 3}, {"POST", 4}), .origins = LIST({"*.put", 5})},
    {.methods = LIST({"DELETE", 6}),
     .origins = LIST({"*", 1}),
     .headers = LIST({"x-amz-*", 7}, {"Content-Type", 12}),
     .expose = LIST({"x-amz-request-id", 16}, {"ETag", 4}),
     .max_age_s = {3000, true}},
};
static const struct s3_cors cors = {rules, ARRAY_LEN(rules)};

static struct str get(const struct http_header *h, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (str_eqc(h[i].name, name)) {
            return h[i].value;
        }
    }
    return STR_NONE;
}

static void test_cors_simple(void **state)
{
    static const struct {
        const char *origin, *method, *want;
    } cases[] = {
        {NULL, "GET", NULL},
        {"foo.suffix", "GET", "foo.suffix"},
        {"suffix", "GET", "suffix"},
        {"foo.bar", "GET", NULL},
        {"foo.suffix.get", "GET", NULL},
        {"startend", "GET", "startend"},
        {"start1end", "GET", "start1end"},
        {"start12end", "GET", "start12end"},
        {"0start12end", "GET", NULL},
        {"starend", "GET", NULL},
        {"abba", "GET", "abba"},
        {"aba", "GET", NULL}, /* the two ends may not share a letter */
        {"prefix", "GET", "prefix"},
        {"prefix.suffix", "GET", "prefix.suffix"},
        {"bla.prefix", "GET", NULL},
        {"foo.suffix", "PUT", NULL},
        {"foo.put", "PUT", "foo.put"},
        {"foo.put", "GET", NULL},
        {"FOO.SUFFIX", "GET", NULL},
        {"anything", "DELETE", "*"},
        {"anything", "delete", NULL},
    };
    struct arena *a = arena_new(1u << 20);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct http_header *h = NULL;
        size_t n = 99;
        assert_int_equal(s3_cors_simple(a, &cors, str_c(cases[i].origin),
                                        str_c(cases[i].method), &h, &n, NULL),
                         0);
        struct str got = get(h, n, "Access-Control-Allow-Origin");
        if (cases[i].want ? !str_eqc(got, cases[i].want) : n != 0) {
            fail_msg("%s %s: %.*s", cases[i].method, cases[i].origin, STR_ARG(got));
        }
        bool is_any = str_eqc(got, "*");
        assert_int_equal(str_is_set(get(h, n, "Access-Control-Allow-Credentials")),
                         n > 0 && !is_any);
        assert_int_equal(str_is_set(get(h, n, "Vary")), n > 0);
        if (is_any) {
            assert_str(get(h, n, "Access-Control-Expose-Headers"), "x-amz-request-id, ETag");
            assert_str(get(h, n, "Access-Control-Max-Age"), "3000");
        }
    }
    const struct http_header *h = NULL;
    size_t n = 0;
    assert_int_equal(s3_cors_simple(a, NULL, STR("x"), STR("GET"), &h, &n, NULL), 0);
    assert_int_equal(n, 0);
    arena_free(a);
}

static void test_cors_preflight(void **state)
{
    static const struct {
        const char *origin, *method, *headers;
        const char *code, *msg;
        const char *want_headers;
    } cases[] = {
        {"foo.put", "PUT", NULL, NULL, NULL, NULL},
        {"foo.put", "POST", "", NULL, NULL, NULL},
        {"x", "DELETE", "X-Amz-Date,content-type , ", NULL, NULL, "x-amz-date, content-type"},
        {"x", "DELETE", "x-amz-date, x-other", "AccessForbidden",
         "CORSResponse: This CORS request is not allowed.", NULL},
        {"foo.suffix", "GET", "x-amz-date", "AccessForbidden", "CORSResponse: This", NULL},
        {"foo.suffix", "PUT", NULL, "AccessForbidden", "CORSResponse: This", NULL},
        {"foo.bar", "GET", NULL, "AccessForbidden", "CORSResponse: This", NULL},
        {NULL, "GET", NULL, "BadRequest",
         "Insufficient information. Origin request header needed.", NULL},
        {"foo.suffix", NULL, NULL, "BadRequest", "Invalid Access-Control-Request-Method: null",
         NULL},
        {"foo.suffix", "PATCH", NULL, "BadRequest",
         "Invalid Access-Control-Request-Method: PATCH", NULL},
        {"foo.suffix", "GET", "a b", "BadRequest",
         "Access-Control-Request-Headers \"a b\" contains invalid character.", NULL},
    };
    struct arena *a = arena_new(1u << 20);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct http_header *h = NULL;
        size_t n = 0;
        struct err err = ERR_INIT;
        int rc = s3_cors_preflight(a, &cors, str_c(cases[i].origin), str_c(cases[i].method),
                                   str_c(cases[i].headers), &h, &n, NULL, &err);
        if ((rc == 0) != (cases[i].code == NULL) ||
            (rc < 0 && (strcmp(err.name, cases[i].code) != 0 ||
                        strncmp(err.msg, cases[i].msg, strlen(cases[i].msg)) != 0))) {
            fail_msg("case %zu: %s", i, err.msg);
        }
        if (rc == 0) {
            struct str got = get(h, n, "Access-Control-Allow-Headers");
            assert_true(cases[i].want_headers ? str_eqc(got, cases[i].want_headers)
                                              : !str_is_set(got));
            assert_true(str_is_set(get(h, n, "Access-Control-Allow-Methods")));
        } else {
            assert_int_equal(n, 0);
        }
    }
    const struct http_header *h = NULL;
    size_t n = 0;
    struct err err = ERR_INIT;
    assert_true(s3_cors_preflight(a, NULL, STR("x"), STR("GET"), STR_NONE, &h, &n, NULL, &err) <
                0);
    assert_string_equal(err.msg, "CORSResponse: CORS is not enabled for this bucket.");
    arena_free(a);
}

static void test_cors_check(void **state)
{
    static struct s3_cors_entry many[S3_CORS_RULES_MAX + 1];
    char id[300];
    struct err err = ERR_INIT;
    assert_int_equal(s3_cors_check(&cors, &err), 0);
    for (size_t i = 0; i < ARRAY_LEN(many); i++) {
        many[i] = rules[0];
    }
    struct s3_cors c = {many, S3_CORS_RULES_MAX};
    assert_int_equal(s3_cors_check(&c, &err), 0);
    c.n_rules++;
    assert_true(s3_cors_check(&c, &err) < 0);
    assert_string_equal(err.name, "InvalidRequest");
    c.n_rules = 0;
    err_clear(&err);
    assert_true(s3_cors_check(&c, &err) < 0);
    assert_string_equal(err.name, "MalformedXML");
    memset(id, 'i', sizeof(id));
    const struct {
        struct s3_cors_entry rule;
        const char *code, *msg;
    } cases[] = {
        {{.origins = LIST({"*", 1})}, "MalformedXML", ""},
        {{.methods = LIST({"GET", 3})}, "MalformedXML", ""},
        {{.methods = LIST({"GET", 3}), .origins = LIST({"*", 1}), .max_age_s = {-1, true}},
         "MalformedXML",
         ""},
        {{.methods = LIST({"PATCH", 5}), .origins = LIST({"*", 1})},
         "InvalidRequest",
         "Found unsupported HTTP method in CORS config. Unsupported method is PATCH"},
        {{.methods = LIST({"get", 3}), .origins = LIST({"*", 1})}, "InvalidRequest", "Found"},
        {{.methods = LIST({"GET", 3}), .origins = LIST({"*a*", 3})},
         "InvalidRequest",
         "AllowedOrigin \"*a*\" can not have more than one wildcard."},
        {{.methods = LIST({"GET", 3}), .origins = LIST({"*", 1}), .headers = LIST({"**", 2})},
         "InvalidRequest",
         "AllowedHeader \"**\" can not have more than one wildcard."},
        {{.methods = LIST({"GET", 3}), .origins = LIST({"*", 1}), .headers = LIST({"a b", 3})},
         "InvalidRequest",
         "AllowedHeader \"a b\" contains invalid character."},
        {{.methods = LIST({"GET", 3}), .origins = LIST({"*", 1}), .expose = LIST({"*", 1})},
         "InvalidRequest",
         "ExposeHeader \"*\" contains wildcard."},
        {{.id = {id, 256}, .methods = LIST({"GET", 3}), .origins = LIST({"*", 1})},
         "InvalidRequest",
         ""},
        {{.id = {id, 255}, .methods = LIST({"GET", 3}), .origins = LIST({"*", 1})}, NULL, ""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct s3_cors one = {&cases[i].rule, 1};
        err_clear(&err);
        int rc = s3_cors_check(&one, &err);
        if ((rc == 0) != (cases[i].code == NULL) ||
            (rc < 0 && (strcmp(err.name, cases[i].code) != 0 ||
                        strncmp(err.msg, cases[i].msg, strlen(cases[i].msg)) != 0))) {
            fail_msg("case %zu: %s", i, err.msg);
        }
    }
}

/* ---- lifecycle ---- */

#define ON      .status = {"Enabled", 7}
#define PREFIX  .prefix = {"", 0}
#define DAYS(n) .has_expiration = true, .days = {n, true}

static const struct s3_tag two_tags[] = {{{"a", 1}, {"1", 1}}, {{"b", 1}, {"2", 1}}};
static const struct s3_tag same_tags[] = {{{"a", 1}, {"1", 1}}, {{"a", 1}, {"2", 1}}};
static char long_text[1100];

static const struct {
    struct s3_life_rule rule;
    const char *code, *msg;
} life_rules[] = {
    {{ON, PREFIX, DAYS(1)}, NULL, NULL},
    {{.status = {"Disabled", 8}, PREFIX, DAYS(1)}, NULL, NULL},
    {{ON, .has_filter = true, DAYS(1)}, NULL, NULL},
    {{ON, .has_filter = true, .filter = {.prefix = {"a/", 2}}, DAYS(1)}, NULL, NULL},
    {{ON, .has_filter = true, .filter = {.tags = two_tags, .n_tags = 1}, DAYS(1)}, NULL, NULL},
    {{ON, .has_filter = true, .filter = {.tags = two_tags, .n_tags = 2, .is_and = true},
      DAYS(1)},
     NULL,
     NULL},
    {{ON, .has_filter = true,
      .filter = {.size_above = {0, true}, .size_below = {10, true}, .is_and = true}, DAYS(1)},
     NULL,
     NULL},
    {{ON, PREFIX, .has_expiration = true, .date = {UINT64_C(86400) * 3 * NS_PER_S, true}},
     NULL,
     NULL},
    {{ON, PREFIX, .has_expiration = true, .marker = {true, true}}, NULL, NULL},
    {{ON, PREFIX, .has_noncurrent = true, .noncurrent_days = {3, true}}, NULL, NULL},
    {{ON, PREFIX, .has_noncurrent = true, .noncurrent_days = {3, true},
      .newer_versions = {100, true}},
     NULL,
     NULL},
    {{ON, PREFIX, .has_abort = true, .abort_days = {7, true}}, NULL, NULL},
    /* status, prefix, filter */
    {{.status = {"enabled", 7}, PREFIX, DAYS(1)}, "MalformedXML", ""},
    {{PREFIX, DAYS(1)}, "MalformedXML", ""},
    {{ON, DAYS(1)}, "MalformedXML", ""},
    {{ON, PREFIX, .has_filter = true, DAYS(1)}, "MalformedXML", ""},
    {{ON, .prefix = {long_text, 1025}, DAYS(1)},
     "InvalidRequest",
     "The maximum size of a prefix is 1024."},
    {{ON, .id = {long_text, 256}, PREFIX, DAYS(1)},
     "InvalidArgument",
     "ID length should not exceed allowed limit of 255"},
    {{ON, .has_filter = true, .filter = {.tags = two_tags, .n_tags = 2}, DAYS(1)},
     "MalformedXML",
     ""},
    {{ON, .has_filter = true, .filter = {.prefix = {"a", 1}, .size_above = {1, true}}, DAYS(1)},
     "MalformedXML",
     ""},
    {{ON, .has_filter = true, .filter = {.prefix = {"a", 1}, .is_and = true}, DAYS(1)},
     "MalformedXML",
     ""},
    {{ON, .has_filter = true, .filter = {.tags = same_tags, .n_tags = 2, .is_and = true},
      DAYS(1)},
     "InvalidRequest",
     "Duplicate Tag Keys are not allowed."},
    {{ON, .has_filter = true,
      .filter = {.size_above = {10, true}, .size_below = {10, true}, .is_and = true}, DAYS(1)},
     "InvalidRequest",
     ""},
    {{ON, .has_filter = true, .filter = {.size_above = {-1, true}}, DAYS(1)},
     "InvalidRequest",
     ""},
    {{ON, .has_filter = true, .filter = {.size_below = {0, true}}, DAYS(1)},
     "InvalidRequest",
     ""},
    /* actions */
    {{ON, PREFIX}, "InvalidRequest", "At least one action needs to be specified in a rule."},
    {{ON, PREFIX, DAYS(0)},
     "InvalidArgument",
     "'Days' for Expiration action must be a positive integer"},
    {{ON, PREFIX, DAYS(-1)}, "InvalidArgument", "'Days' for Expiration"},
    {{ON, PREFIX, DAYS(INT64_MAX)}, "InvalidArgument", "'Days' for Expiration"},
    {{ON, PREFIX, .has_expiration = true}, "MalformedXML", ""},
    {{ON, PREFIX, DAYS(1), .marker = {true, true}}, "MalformedXML", ""},
    {{ON, PREFIX, DAYS(1), .date = {0, true}}, "MalformedXML", ""},
    {{ON, PREFIX, .has_expiration = true, .date = {UINT64_C(86400) * NS_PER_S + 1, true}},
     "InvalidArgument",
     "'Date' must be at midnight GMT"},
    {{ON, .has_filter = true, .filter = {.tags = two_tags, .n_tags = 1}, .has_expiration = true,
      .marker = {true, true}},
     "InvalidRequest",
     "ExpiredObjectDeleteMarker cannot be specified with Tags."},
    {{ON, PREFIX, .has_noncurrent = true}, "MalformedXML", ""},
    {{ON, PREFIX, .has_noncurrent = true, .noncurrent_days = {0, true}},
     "InvalidArgument",
     "'NoncurrentDays'"},
    {{ON, PREFIX, .has_noncurrent = true, .noncurrent_days = {1, true},
      .newer_versions = {0, true}},
     "InvalidArgument",
     "'NewerNoncurrentVersions'"},
    {{ON, PREFIX, .has_noncurrent = true, .noncurrent_days = {1, true},
      .newer_versions = {101, true}},
     "InvalidArgument",
     "'NewerNoncurrentVersions'"},
    {{ON, PREFIX, .has_abort = true}, "MalformedXML", ""},
    {{ON, PREFIX, .has_abort = true, .abort_days = {0, true}},
     "InvalidArgument",
     "'DaysAfterInitiation'"},
    {{ON, .has_filter = true, .filter = {.tags = two_tags, .n_tags = 1}, .has_abort = true,
      .abort_days = {1, true}},
     "InvalidRequest",
     "AbortIncompleteMultipartUpload cannot be specified with Tags."},
    {{ON, .has_filter = true, .filter = {.size_above = {1, true}}, .has_abort = true,
      .abort_days = {1, true}},
     "InvalidRequest",
     "AbortIncompleteMultipartUpload cannot be specified with Object Size."},
    {{ON, PREFIX, DAYS(1), .has_transition = true}, "NotImplemented", "Transitions"},
    {{ON, PREFIX, DAYS(1), .has_transition = true,
      .transition_date = {UINT64_C(86400) * NS_PER_S, true}},
     "NotImplemented",
     "Transitions"},
    {{ON, PREFIX, DAYS(1), .has_transition = true, .transition_date = {NS_PER_S, true}},
     "InvalidArgument",
     "'Date' must be at midnight GMT"},
};

static void test_lifecycle_check(void **state)
{
    struct arena *a = arena_new(1u << 20);
    memset(long_text, 'x', sizeof(long_text));
    for (size_t i = 0; i < ARRAY_LEN(life_rules); i++) {
        struct s3_life_rule r = life_rules[i].rule;
        struct s3_life l = {&r, 1};
        struct err err = ERR_INIT;
        int rc = s3_life_check(a, &l, &err);
        if ((rc == 0) != (life_rules[i].code == NULL) ||
            (rc < 0 && (strcmp(err.name, life_rules[i].code) != 0 ||
                        strncmp(err.msg, life_rules[i].msg, strlen(life_rules[i].msg)) != 0))) {
            fail_msg("case %zu: %s: %s", i, err.name ? err.name : "good", err.msg);
        }
        assert_true(rc < 0 || r.id.n > 0); /* a name was made */
    }
    static struct s3_life_rule many[S3_LIFE_RULES_MAX + 1];
    for (size_t i = 0; i < ARRAY_LEN(many); i++) {
        many[i] = life_rules[0].rule;
    }
    struct s3_life l = {many, S3_LIFE_RULES_MAX};
    struct err err = ERR_INIT;
    assert_int_equal(s3_life_check(a, &l, &err), 0);
    l.n_rules++;
    assert_true(s3_life_check(a, &l, &err) < 0);
    assert_string_equal(err.name, "InvalidRequest");
    err_clear(&err);
    l.n_rules = 0;
    assert_true(s3_life_check(a, &l, &err) < 0);
    assert_string_equal(err.name, "MalformedXML");
    err_clear(&err);
    many[0].id = many[5].id = STR("same");
    l.n_rules = 10;
    assert_true(s3_life_check(a, &l, &err) < 0);
    assert_string_equal(err.msg,
                        "Rule ID must be unique. Found same ID for more than one rule");
    arena_free(a);
}

static uint64_t at(const char *iso)
{
    uint64_t ns = 0;
    assert_int_equal(time_parse_iso(str_c(iso), &ns), 0);
    return ns;
}

/* The documentation's example: created on the 15th at 10:30, three days: the 19th at 00:00. */
static void test_midnight_rounding(void **state)
{
    struct arena *a = arena_new(1u << 20);
    struct s3_life_rule r = {
        .id = STR("my rule"), ON, PREFIX, DAYS(3), .has_abort = true, .abort_days = {1, true}};
    const struct s3_life l = {&r, 1};
    struct s3_life_object o = {
        .key = STR("k"), .mtime_ns = at("2014-01-15T10:30:00Z"), .is_current = true};
    const struct s3_life_rule *why = NULL;
    assert_int_equal(s3_life_object(&l, &o, at("2014-01-18T23:59:59Z"), &why), S3_LIFE_KEEP);
    assert_null(why);
    assert_int_equal(s3_life_object(&l, &o, at("2014-01-19T00:00:00Z"), &why), S3_LIFE_EXPIRE);
    assert_ptr_equal(why, &r);
    assert_str(s3_life_header(a, &l, &o),
               "expiry-date=\"Sun, 19 Jan 2014 00:00:00 GMT\", rule-id=\"my%20rule\"");
    assert_false(s3_life_upload(&l, STR("k"), o.mtime_ns, at("2014-01-16T23:59:59Z"), NULL));
    assert_true(s3_life_upload(&l, STR("k"), o.mtime_ns, at("2014-01-17T00:00:00Z"), NULL));
    /* numbers that no clock reaches */
    r.days.v = INT32_MAX;
    assert_int_equal(s3_life_object(&l, &o, UINT64_MAX - 1, &why), S3_LIFE_KEEP);
    assert_false(str_is_set(s3_life_header(a, &l, &o)));
    r.status = STR("Disabled");
    r.days.v = 1;
    assert_int_equal(s3_life_object(&l, &o, at("2015-01-01T00:00:00Z"), &why), S3_LIFE_KEEP);
    assert_false(s3_life_upload(&l, STR("k"), o.mtime_ns, at("2015-01-01T00:00:00Z"), NULL));
    arena_free(a);
}

static void test_filters(void **state)
{
    const struct s3_tag tags[] = {{STR("a"), STR("1")}, {STR("b"), STR("2")}};
    const struct s3_tag other[] = {{STR("a"), STR("2")}, {STR("b"), STR("1")}};
    const struct {
        struct s3_life_rule rule;
        bool log_small, log_tagged, doc_large; /* which of three objects expire */
    } cases[] = {
        {{ON, PREFIX, DAYS(1)}, true, true, true},
        {{ON, .prefix = {"logs/", 5}, DAYS(1)}, true, true, false},
        {{ON, .has_filter = true, DAYS(1)}, true, true, true},
        {{ON, .has_filter = true, .filter = {.prefix = {"doc", 3}}, DAYS(1)},
         false,
         false,
         true},
        {{ON, .has_filter = true, .filter = {.tags = two_tags, .n_tags = 1}, DAYS(1)},
         false,
         true,
         false},
        {{ON, .has_filter = true, .filter = {.tags = two_tags, .n_tags = 2}, DAYS(1)},
         false,
         true,
         false},
        {{ON, .has_filter = true, .filter = {.size_above = {10, true}}, DAYS(1)},
         false,
         false,
         true},
        {{ON, .has_filter = true, .filter = {.size_above = {9, true}}, DAYS(1)},
         true,
         true,
         true},
        {{ON, .has_filter = true, .filter = {.size_below = {11, true}}, DAYS(1)},
         true,
         true,
         false},
        {{ON, .has_filter = true, .filter = {.size_below = {10, true}}, DAYS(1)},
         false,
         false,
         false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct s3_life_rule r = cases[i].rule;
        const struct s3_life l = {&r, 1};
        const struct s3_life_object objects[] = {
            {.key = STR("logs/a"), .size = 10, .is_current = true, .tags = other, .n_tags = 2},
            {.key = STR("logs/b"), .size = 10, .is_current = true, .tags = tags, .n_tags = 2},
            {.key = STR("doc"), .size = 1000, .is_current = true},
        };
        const bool want[] = {cases[i].log_small, cases[i].log_tagged, cases[i].doc_large};
        for (size_t k = 0; k < ARRAY_LEN(objects); k++) {
            enum s3_life_action got =
                s3_life_object(&l, &objects[k], UINT64_C(86400) * 2 * NS_PER_S, NULL);
            if ((got == S3_LIFE_EXPIRE) != want[k]) {
                fail_msg("rule %zu, object %zu", i, k);
            }
        }
    }
}

static void test_versions_and_markers(void **state)
{
    const uint64_t day = UINT64_C(86400) * NS_PER_S, now = 100 * day;
    struct s3_life_rule days = {ON, PREFIX, DAYS(10)};
    struct s3_life_rule date = {ON, PREFIX, .has_expiration = true, .date = {50 * day, true}};
    struct s3_life_rule marker = {ON, PREFIX, .has_expiration = true, .marker = {true, true}};
    struct s3_life_rule no_marker = {ON, PREFIX, .has_expiration = true,
                                     .marker = {false, true}};
    struct s3_life_rule old = {ON, PREFIX, .has_noncurrent = true,
                               .noncurrent_days = {5, true}};
    struct s3_life_rule keep3 = {ON, PREFIX, .has_noncurrent = true,
                                 .noncurrent_days = {5, true}, .newer_versions = {3, true}};
    const struct {
        struct s3_life_rule *rule;
        struct s3_life_object o;
        enum s3_life_action want;
    } cases[] = {
        {&days, {.is_current = true, .mtime_ns = 80 * day}, S3_LIFE_EXPIRE},
        {&days, {.is_current = true, .mtime_ns = 95 * day}, S3_LIFE_KEEP},
        {&days, {.is_current = false, .mtime_ns = 1 * day}, S3_LIFE_KEEP},
        {&date, {.is_current = true, .mtime_ns = 99 * day}, S3_LIFE_EXPIRE},
        {&marker, {.is_current = true, .mtime_ns = 1 * day}, S3_LIFE_KEEP},
        /* markers: only when nothing is behind them */
        {&marker,
         {.is_current = true, .is_marker = true, .is_only_version = true},
         S3_LIFE_DELETE_MARKER},
        {&marker, {.is_current = true, .is_marker = true}, S3_LIFE_KEEP},
        {&no_marker,
         {.is_current = true, .is_marker = true, .is_only_version = true},
         S3_LIFE_KEEP},
        {&days,
         {.is_current = true, .is_marker = true, .is_only_version = true, .mtime_ns = 80 * day},
         S3_LIFE_DELETE_MARKER},
        {&days,
         {.is_current = true, .is_marker = true, .is_only_version = true, .mtime_ns = 95 * day},
         S3_LIFE_KEEP},
        {&days, {.is_current = true, .is_marker = true, .mtime_ns = 80 * day}, S3_LIFE_KEEP},
        /* noncurrent: counted from when they became so */
        {&old, {.noncurrent_since_ns = 90 * day, .mtime_ns = 1}, S3_LIFE_DELETE_VERSION},
        {&old, {.noncurrent_since_ns = 94 * day, .mtime_ns = 1}, S3_LIFE_DELETE_VERSION},
        {&old, {.noncurrent_since_ns = 94 * day + 1, .mtime_ns = 1}, S3_LIFE_DELETE_VERSION},
        {&old, {.noncurrent_since_ns = 95 * day, .mtime_ns = 1}, S3_LIFE_KEEP},
        {&old, {.noncurrent_since_ns = 90 * day, .is_marker = true}, S3_LIFE_DELETE_VERSION},
        {&old, {.is_current = true, .mtime_ns = 1}, S3_LIFE_KEEP},
        {&keep3, {.noncurrent_since_ns = 90 * day, .n_newer_noncurrent = 2}, S3_LIFE_KEEP},
        {&keep3,
         {.noncurrent_since_ns = 90 * day, .n_newer_noncurrent = 3},
         S3_LIFE_DELETE_VERSION},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct s3_life_object o = cases[i].o;
        const struct s3_life l = {cases[i].rule, 1};
        o.key = STR("k");
        o.is_versioned = true;
        enum s3_life_action got = s3_life_object(&l, &o, now, NULL);
        if (got != cases[i].want) {
            fail_msg("case %zu: %d", i, got);
        }
    }
}

/* The earliest of several rules names the day. */
static void test_the_earliest_rule_counts(void **state)
{
    struct s3_life_rule all[] = {
        {.id = STR("late"), ON, PREFIX, DAYS(30)},
        {.id = STR("early"), ON, .prefix = STR("a"), DAYS(3)},
        {.id = STR("off"), .status = STR("Disabled"), PREFIX, DAYS(1)},
        {.id = STR("up7"), ON, PREFIX, .has_abort = true, .abort_days = {7, true}},
        {.id = STR("up2"), ON, .prefix = STR("a"), .has_abort = true, .abort_days = {2, true}},
    };
    const struct s3_life l = {all, ARRAY_LEN(all)};
    struct s3_life_object o = {.key = STR("abc"), .is_current = true};
    const struct s3_life_rule *r = NULL;
    uint64_t ns = 0;
    assert_true(s3_life_when(&l, &o, &ns, &r));
    assert_str(r->id, "early");
    assert_int_equal(ns, UINT64_C(86400) * 4 * NS_PER_S);
    assert_true(s3_life_upload_when(&l, STR("abc"), 0, &ns, &r));
    assert_str(r->id, "up2");
    o.key = STR("b");
    assert_true(s3_life_when(&l, &o, &ns, &r));
    assert_str(r->id, "late");
    assert_true(s3_life_upload_when(&l, STR("b"), 0, &ns, &r));
    assert_str(r->id, "up7");
    o.is_marker = true;
    assert_false(s3_life_when(&l, &o, &ns, &r));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cors_simple),
        cmocka_unit_test(test_cors_preflight),
        cmocka_unit_test(test_cors_check),
        cmocka_unit_test(test_lifecycle_check),
        cmocka_unit_test(test_midnight_rounding),
        cmocka_unit_test(test_filters),
        cmocka_unit_test(test_versions_and_markers),
        cmocka_unit_test(test_the_earliest_rule_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

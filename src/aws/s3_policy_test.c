/* POST policies: which fields and sizes they allow. */
#include "aws/s3_form.h"

#include "aws/s3_test_req.h"

#define NOW_NS (UINT64_C(1451347200) * NS_PER_S) /* 2015-12-29T00:00:00Z */

struct pair {
    const char *name, *value;
};

#define EXP                "\"expiration\":\"2015-12-30T00:00:00.000Z\""
#define POLICY(conditions) "{" EXP ",\"conditions\":[" conditions "]}"
#define BUCKET             "{\"bucket\":\"b1\"}"
#define FIELDS                                          \
    {"key", "foo.txt"}, {"Content-Type", "text/plain"}, \
    {                                                   \
        "policy", "x"                                   \
    }

static const struct {
    const char *json;
    struct pair fields[8];
    const char *code, *msg;
} policies[] = {
    {POLICY(BUCKET
            ",[\"starts-with\",\"$key\",\"foo\"],[\"eq\",\"$Content-Type\",\"text/plain\"]"),
     {FIELDS},
     NULL,
     NULL},
    {POLICY("{\"bUcKeT\":\"b1\"},[\"StArTs-WiTh\",\"$KeY\",\"foo\"],[\"starts-with\","
            "\"$CoNtEnT-TyPe\",\"text\"]"),
     {FIELDS},
     NULL,
     NULL},
    {POLICY(BUCKET ",[\"starts-with\",\"$key\",\"\"],[\"starts-with\",\"$Content-Type\",\"\"]"),
     {FIELDS},
     NULL,
     NULL},
    {POLICY("{\"bucket\":\"b1\"},{\"key\":\"foo.txt\"},{\"content-type\":\"text/plain\"}"),
     {FIELDS},
     NULL,
     NULL},
    {POLICY("[\"eq\",\"$bucket\",\"b1\"],[\"eq\",\"$key\",\"foo.txt\"],[\"eq\","
            "\"$Content-Type\",\"text/plain\"]"),
     {FIELDS},
     NULL,
     NULL},
    /* escapes that JSON lacks */
    {POLICY(BUCKET ",[\"starts-with\",\"$key\",\"\\$foo\"]"),
     {{"key", "$foo.txt"}},
     NULL,
     NULL},
    {POLICY(BUCKET ",[\"starts-with\",\"$key\",\"\\\\$foo\"]"),
     {{"key", "\\$foo.txt"}},
     NULL,
     NULL},
    {POLICY(BUCKET ",[\"eq\",\"$key\",\"a\\vb\"]"), {{"key", "a\vb"}}, NULL, NULL},
    /* a list of types */
    {POLICY(BUCKET ",[\"starts-with\",\"$key\",\"\"],[\"starts-with\",\"$Content-Type\","
                   "\"image/\"]"),
     {{"key", "k"}, {"Content-Type", "image/jpg,image/png, image/gif"}},
     NULL,
     NULL},
    {POLICY(BUCKET ",[\"starts-with\",\"$key\",\"\"],[\"starts-with\",\"$Content-Type\","
                   "\"image/\"]"),
     {{"key", "k"}, {"Content-Type", "image/jpg,text/html"}},
     "AccessDenied",
     "Invalid according to Policy: Policy Condition failed: [\"starts-with\", "
     "\"$Content-Type\", "
     "\"image/\"]"},
    /* exempt fields */
    {POLICY(BUCKET ",{\"key\":\"k\"}"),
     {{"key", "k"},
      {"x-ignore-foo", "bar"},
      {"X-Amz-Signature", "s"},
      {"file", "x"},
      {"aWSAccessKeyId", "x"},
      {"signature", "x"},
      {"pOLICy", "x"}},
     NULL,
     NULL},
    /* every other field must be covered */
    {POLICY(BUCKET ",{\"key\":\"k\"}"),
     {{"key", "k"}, {"x-amz-meta-a", "1"}},
     "AccessDenied",
     "Invalid according to Policy: Extra input fields: x-amz-meta-a"},
    {POLICY(BUCKET ",{\"key\":\"k\"}"),
     {{"key", "k"}, {"acl", "public-read"}},
     "AccessDenied",
     "Invalid according to Policy: Extra input fields: acl"},
    {POLICY(BUCKET ",{\"key\":\"k\"}"),
     {{"key", "k"}, {"x-amz-algorithm", "1"}},
     "AccessDenied",
     "Invalid according to Policy: Extra input fields: x-amz-algorithm"},
    {POLICY(BUCKET ",{\"key\":\"k\"}"),
     {{"key", "k"}, {"success_action_redirect", "http://x"}},
     "AccessDenied",
     "Invalid according to Policy: Extra input fields: success_action_redirect"},
    {POLICY(BUCKET),
     {{"key", "k"}},
     "AccessDenied",
     "Invalid according to Policy: Extra input fields: key"},
    {POLICY("{\"key\":\"k\"}"),
     {{"key", "k"}},
     "AccessDenied",
     "Invalid according to Policy: Extra input fields: bucket"},
    /* conditions that do not hold; the last one does not undo the first */
    {POLICY("{\"bucket\":\"b2\"},{\"key\":\"k\"}"),
     {{"key", "k"}},
     "AccessDenied",
     "Invalid according to Policy: Policy Condition failed: [\"eq\", \"$bucket\", \"b2\"]"},
    {POLICY(BUCKET ",{\"key\":\"K\"}"),
     {{"key", "k"}},
     "AccessDenied",
     "Invalid according to Policy: Policy Condition failed: [\"eq\", \"$key\", \"K\"]"},
    {POLICY(BUCKET ",[\"eq\",\"key\",\"k\"]"),
     {{"key", "k"}},
     "AccessDenied",
     "Invalid according to Policy: Policy Condition failed: [\"eq\", \"key\", \"k\"]"},
    {POLICY(BUCKET ",{\"key\":\"k\",\"acl\":\"private\"}"),
     {{"key", "k"}, {"acl", "private"}},
     "InvalidPolicyDocument",
     "Invalid Policy: Invalid Simple-Condition: Simple-Conditions must have exactly one "
     "property "
     "specified."},
    {POLICY(BUCKET ",[\"starts-with\",\"$key\",\"user/\"],[\"starts-with\",\"$key\",\"\"]"),
     {{"key", "other/k"}},
     "AccessDenied",
     "Invalid according to Policy: Policy Condition failed"},
    {POLICY(BUCKET ",[\"starts-with\",\"$key\",\"\"],[\"eq\",\"$key\",\"user/k\"]"),
     {{"key", "other/k"}},
     "AccessDenied",
     "Invalid according to Policy: Policy Condition failed"},
    {POLICY(BUCKET ",{\"key\":\"k\"},[\"starts-with\",\"$x-amz-meta-foo\",\"bar\"]"),
     {{"key", "k"}},
     "AccessDenied",
     "Invalid according to Policy: Policy Condition failed"},
    {POLICY(BUCKET ",{\"key\":\"k\"},[\"eq\",\"$x-amz-meta-foo\",\"\"]"),
     {{"key", "k"}, {"x-amz-meta-foo", "barclamp"}},
     "AccessDenied",
     "Invalid according to Policy: Policy Condition failed"},
    /* a field called bucket says nothing of the bucket */
    {POLICY("{\"bucket\":\"b2\"},{\"key\":\"k\"}"),
     {{"key", "k"}, {"bucket", "b2"}},
     "AccessDenied",
     "Invalid according to Policy: Policy Condition failed"},
    /* documents */
    {"", {{"key", "k"}}, "InvalidPolicyDocument", "Invalid Policy: Invalid JSON."},
    {"[]", {{"key", "k"}}, "InvalidPolicyDocument", "Invalid Policy: Invalid JSON."},
    {"{" EXP "}",
     {{"key", "k"}},
     "InvalidPolicyDocument",
     "Invalid Policy: Policy missing conditions."},
    {"{" EXP ",\"CONDITIONS\":[]}",
     {{"key", "k"}},
     "InvalidPolicyDocument",
     "Invalid Policy: Policy missing conditions."},
    {"{" EXP ",\"conditions\":{}}", {{"key", "k"}}, "InvalidPolicyDocument", "Invalid Policy"},
    {"{\"conditions\":[]}",
     {{"key", "k"}},
     "InvalidPolicyDocument",
     "Invalid Policy: Policy missing expiration."},
    {"{\"EXPIRATION\":\"2015-12-30T00:00:00.000Z\",\"conditions\":[]}",
     {{"key", "k"}},
     "InvalidPolicyDocument",
     "Invalid Policy: Policy missing expiration."},
    {"{\"expiration\":\"2015-12-30 00:00:00+00:00\",\"conditions\":[]}",
     {{"key", "k"}},
     "InvalidPolicyDocument",
     "Invalid Policy: Invalid 'expiration' value"},
    {"{\"expiration\":5,\"conditions\":[]}", {{"key", "k"}}, "InvalidPolicyDocument", ""},
    {"{\"expiration\":\"2015-12-28T23:59:59Z\",\"conditions\":[]}",
     {{"key", "k"}},
     "AccessDenied",
     "Invalid according to Policy: Policy expired."},
    {POLICY("{}"), {{"key", "k"}}, "InvalidPolicyDocument", "Invalid Policy: Invalid Simple-"},
    {POLICY("{\"key\":5}"), {{"key", "k"}}, "InvalidPolicyDocument", ""},
    {POLICY("\"key\""), {{"key", "k"}}, "InvalidPolicyDocument", ""},
    {POLICY("[\"eq\",\"$key\"]"), {{"key", "k"}}, "InvalidPolicyDocument", ""},
    {POLICY("[\"like\",\"$key\",\"k\"]"), {{"key", "k"}}, "InvalidPolicyDocument", ""},
    {POLICY("[\"content-length-range\",0]"), {{"key", "k"}}, "InvalidPolicyDocument", ""},
    {POLICY("[\"content-length-range\",-1,0]"), {{"key", "k"}}, "InvalidPolicyDocument", ""},
    {POLICY("[\"content-length-range\",10,5]"), {{"key", "k"}}, "InvalidPolicyDocument", ""},
    {POLICY("[\"content-length-range\",\"a\",5]"), {{"key", "k"}}, "InvalidPolicyDocument", ""},
    {POLICY("[\"content-length-range\",0,1.5]"), {{"key", "k"}}, "InvalidPolicyDocument", ""},
};

/* Bug 10 of the research: policies with holes, and policies that are too strict. */
static void test_policy_holes(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
        struct s3_form_field fields[8];
        struct s3_form_upload up = {.success_status = 0};
        struct err err = ERR_INIT;
        size_t n = 0;
        while (n < ARRAY_LEN(fields) && policies[i].fields[n].name) {
            fields[n] = (struct s3_form_field){str_c(policies[i].fields[n].name),
                                               str_c(policies[i].fields[n].value)};
            n++;
        }
        const struct s3_form_policy_in in = {.json = str_c(policies[i].json),
                                             .bucket = STR("b1"),
                                             .fields = fields,
                                             .n_fields = n,
                                             .now_ns = NOW_NS};
        int rc = s3_form_policy(&in, &up, &err);
        if ((rc == 0) != (policies[i].code == NULL) ||
            (rc < 0 && (strcmp(err.name, policies[i].code) != 0 ||
                        strncmp(err.msg, policies[i].msg, strlen(policies[i].msg)) != 0))) {
            fail_msg("case %zu: %s: %s", i, err.name ? err.name : "good", err.msg);
        }
    }
}

static void test_content_length_range(void **state)
{
    struct s3_test *t = *state;
    static const struct {
        const char *json;
        uint64_t min, max;
    } cases[] = {
        {POLICY(BUCKET ",{\"key\":\"k\"}"), 0, UINT64_MAX},
        {POLICY(BUCKET ",{\"key\":\"k\"},[\"content-length-range\",0,1024]"), 0, 1024},
        {POLICY(BUCKET ",{\"key\":\"k\"},[\"content-length-range\",\"1\",\"10\"]"), 1, 10},
        {POLICY(BUCKET ",{\"key\":\"k\"},[\"content-length-range\",1,100],"
                       "[\"Content-Length-Range\",0,50]"),
         1, 50},
        {POLICY(BUCKET ",{\"key\":\"k\"},[\"content-length-range\",0,50],"
                       "[\"content-length-range\",1,100]"),
         1, 50},
    };
    struct s3_form_field field = {STR("key"), STR("k")};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct s3_form_upload up = {.success_status = 0};
        const struct s3_form_policy_in in = {.json = str_c(cases[i].json),
                                             .bucket = STR("b1"),
                                             .fields = &field,
                                             .n_fields = 1,
                                             .now_ns = NOW_NS};
        assert_int_equal(s3_form_policy(&in, &up, NULL), 0);
        assert_int_equal(up.min_size, cases[i].min);
        assert_int_equal(up.max_size, cases[i].max);
        struct s3_extra extra = {.n = 0};
        struct err err = ERR_INIT;
        assert_int_equal(s3_form_size_check(t->a, &up, cases[i].max, false, &extra, &err), 0);
        assert_int_equal(s3_form_size_check(t->a, &up, 0, false, &extra, &err), 0);
        if (cases[i].max < UINT64_MAX) {
            assert_true(s3_form_size_check(t->a, &up, cases[i].max + 1, false, &extra, &err) <
                        0);
            assert_string_equal(err.name, "EntityTooLarge");
            err_clear(&err);
        }
        int rc = s3_form_size_check(t->a, &up, 0, true, &extra, &err);
        assert_int_equal(rc<0, cases[i].min> 0);
        assert_true(rc == 0 || strcmp(err.name, "EntityTooSmall") == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_policy_holes),
        cmocka_unit_test_setup_teardown(test_content_length_range, s3_test_setup,
                                        s3_test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* help_test.c — the helpers of handlers: filters, pages, ids, ARNs, errors, XML, policies. */
#include "aws/filter.h"

#include "aws/arn.h"
#include "aws/errors.h"
#include "aws/ids.h"
#include "aws/page.h"
#include "aws/policy.h"
#include "aws/xml_out.h"
#include "base/test.h"
#include "codec/base64.h"

#include <errno.h>

static struct arena *arena;

static int reset(void **state)
{
    arena_reset(arena);
    return 0;
}

/* ---- filters ---- */

struct thing {
    const char *state, *groups[3], *tags[4]; /* tags: key, value, key, value */
    int64_t count;
    bool is_ok;
};

static const char *const filter_names[] = {"state", "group-id", "count", "ok", "launch-time"};

static void thing_values(void *ctx, const void *obj, size_t name_idx,
                         struct aws_filter_probe *p)
{
    const struct thing *t = obj;
    switch (name_idx) {
    case 0: aws_filter_addc(p, t->state); break;
    case 1:
        for (size_t i = 0; i < 3 && t->groups[i]; i++) {
            aws_filter_addc(p, t->groups[i]);
        }
        break;
    case 2: aws_filter_add_i64(p, t->count); break;
    case 3: aws_filter_add_bool(p, t->is_ok); break;
    default: aws_filter_add_time(p, UINT64_C(1422172800000000000)); break;
    }
}

static void thing_tags(void *ctx, const void *obj, struct aws_filter_probe *p)
{
    const struct thing *t = obj;
    for (size_t i = 0; i < 4 && t->tags[i]; i += 2) {
        aws_filter_tag(p, str_c(t->tags[i]), str_c(t->tags[i + 1]));
    }
}

static const struct aws_filter_spec filter_spec = {.names = filter_names,
                                                   .n_names = ARRAY_LEN(filter_names),
                                                   .has_tags = true,
                                                   .values = thing_values,
                                                   .tags = thing_tags};

/* "name=v1|v2;name=v" */
static struct ec2_filter_list filters(const char *text)
{
    struct ec2_filter_list l = {0};
    struct str rest = str_c(text), one, value;
    AWS_LIST_MAKE(arena, &l, 8);
    l.n = 0;
    while (rest.n && str_next(&rest, ';', &one)) {
        struct ec2_filter *f = &l.v[l.n++];
        struct str name = str_cut(one, '='), values = str_skip(one, name.n + 1);
        f->name = str_eqc(name, "-") ? STR_NONE : name;
        AWS_LIST_MAKE(arena, &f->values, 8);
        f->values.n = 0;
        while (name.n < one.n && str_next(&values, '|', &value)) {
            f->values.v[f->values.n++] = value;
        }
    }
    return l;
}

static void test_filters(void **state)
{
    static const struct thing thing = {
        "running", {"sg-1", "sg-2"}, {"Name", "web-1", "Env", ""}, 7, true};
    static const struct {
        const char *filters;
        bool want;
    } cases[] = {
        {"", true},
        {"state=running", true},
        {"state=Running", false},
        {"state=stopped|running", true},
        {"state=stopped", false},
        {"state=run*", true},
        {"state=r?nning", true},
        {"state=run", false},
        {"state=r\\*nning", false},
        {"state=running;count=7", true},
        {"state=running;count=8", false},
        {"group-id=sg-2", true}, /* any of the object's values */
        {"group-id=sg-3", false},
        {"group-id=sg-1;group-id=sg-2", true},
        {"ok=true", true},
        {"ok=false", false},
        {"launch-time=2015-01-25*", true},
        {"tag:Name=web-*", true},
        {"tag:name=web-*", false},
        {"tag:Name=db|web-1", true},
        {"tag:Env=", true}, /* an empty value is a value */
        {"tag:Other=", false},
        {"tag-key=Name", true},
        {"tag-key=N*", true},
        {"tag-key=Owner", false},
        {"tag-value=web-1", true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct ec2_filter_list l = filters(cases[i].filters);
        struct aws_filter *f = NULL;
        struct err err = ERR_INIT;
        assert_int_equal(aws_filter_open(arena, &filter_spec, &l, &f, &err), 0);
        if (aws_filter_match(f, NULL, &thing) != cases[i].want) {
            fail_msg("%s: not %d", cases[i].filters, cases[i].want);
        }
        assert_int_equal(aws_filter_is_empty(f), cases[i].filters[0] == '\0');
    }
    struct ec2_filter_list l = filters("state=a|b");
    struct aws_filter *f = NULL;
    assert_int_equal(aws_filter_open(arena, &filter_spec, &l, &f, NULL), 0);
    assert_int_equal(aws_filter_values(f, "state")->n, 2);
    assert_null(aws_filter_values(f, "count"));
}

static void test_bad_filters(void **state)
{
    static const struct {
        const char *filters, *name, *msg;
    } cases[] = {
        {"colour=red", "InvalidParameterValue", "The filter 'colour' is invalid"},
        {"tag:=x", "InvalidParameterValue", "The filter 'tag:' is invalid"},
        {"=x", "InvalidParameterValue", "The filter '' is invalid"},
        {"-=x", "MissingParameter", "The request must contain the parameter Filter.1.Name"},
        {"state", "MissingParameter", "The request must contain the parameter Filter.1.Value"},
    };
    struct aws_filter *f = NULL;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct ec2_filter_list l = filters(cases[i].filters);
        struct err err = ERR_INIT;
        assert_true(aws_filter_open(arena, &filter_spec, &l, &f, &err) < 0);
        assert_string_equal(err.name, cases[i].name);
        assert_string_equal(err.msg, cases[i].msg);
    }
    struct aws_filter_spec no_tags = filter_spec;
    struct ec2_filter_list l = filters("tag:Name=x");
    struct err err = ERR_INIT;
    no_tags.has_tags = false;
    assert_true(aws_filter_open(arena, &no_tags, &l, &f, &err) < 0);
    AWS_LIST_MAKE(arena, &l.v[0].values, 201);
    err_clear(&err);
    assert_true(aws_filter_open(arena, &filter_spec, &l, &f, &err) < 0);
    assert_string_equal(err.name, "FilterLimitExceeded");
}

/* ---- pages ---- */

static struct aws_call call_of(const char *account, const char *op)
{
    return (struct aws_call){.arena = arena,
                             .account = str_c(account),
                             .service = &aws_service_ec2,
                             .op_name = str_c(op),
                             .page_key = STR("0123456789abcdef0123456789abcdef")};
}

static void test_pages(void **state)
{
    static const struct aws_page_spec spec = {.min = 5, .max = 1000};
    struct aws_call call = call_of("123456789012", "DescribeInstances");
    struct aws_page page;
    assert_int_equal(aws_page_begin(&call, &spec, (struct opt_i64){0}, STR_NONE, &page, NULL),
                     0);
    assert_true(page.max == SIZE_MAX && !page.after.p);
    struct str token = aws_page_token(&call, STR("i-00a"));
    assert_int_equal(aws_page_begin(&call, &spec, some_i64(5), token, &page, NULL), 0);
    assert_int_equal(page.max, 5);
    assert_str(page.after, "i-00a");
    /* Every changed byte, another account, operation or key, garbage. */
    for (size_t i = 0; i < token.n; i++) {
        struct str bad = arena_str_dup(arena, token);
        char *p = arena_alloc(arena, token.n);
        memcpy(p, bad.p, bad.n);
        p[i] = p[i] == 'A' ? 'B' : 'A';
        struct err err = ERR_INIT;
        int rc = aws_page_begin(&call, &spec, some_i64(5), str_n(p, token.n), &page, &err);
        assert_true(rc < 0 && strcmp(err.name, "InvalidNextToken") == 0);
    }
    struct aws_call others[] = {call_of("210987654321", "DescribeInstances"),
                                call_of("123456789012", "DescribeVolumes"), call};
    others[2].page_key = STR("another key of thirty-two bytes!");
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        assert_true(aws_page_begin(&others[i], &spec, some_i64(5), token, &page, NULL) < 0);
    }
    assert_true(aws_page_begin(&call, &spec, some_i64(5), STR("x"), &page, NULL) < 0);
    assert_int_equal(aws_page_begin(&call, &spec, some_i64(5), STR(""), &page, NULL), 0);
}

static void test_page_ranges(void **state)
{
    struct aws_page_spec spec = {
        .min = 5, .max = 1000, .ids_param = "instancesSet", .has_ids = false};
    struct aws_call call = call_of("123456789012", "DescribeInstances");
    struct aws_page page;
    static const struct {
        int64_t max;
        const char *want;
    } cases[] = {
        {5, ""},
        {1000, ""},
        {4, "Value ( 4 ) for parameter maxResults is invalid. Expecting a value greater than "
            "or equal to 5."},
        {-1, "Value ( -1 ) for parameter maxResults is invalid. Expecting a value greater than "
             "or equal to 5."},
        {1001, "Value ( 1001 ) for parameter maxResults is invalid. Expecting a value less "
               "than or equal to 1000."},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err = ERR_INIT;
        int rc = aws_page_begin(&call, &spec, some_i64(cases[i].max), STR_NONE, &page, &err);
        assert_int_equal(rc < 0, cases[i].want[0] != '\0');
        assert_string_equal(err.msg, cases[i].want);
    }
    struct err err = ERR_INIT;
    spec.has_ids = true;
    assert_true(aws_page_begin(&call, &spec, some_i64(5), STR_NONE, &page, &err) < 0);
    assert_string_equal(err.name, "InvalidParameterCombination");
    assert_string_equal(
        err.msg, "The parameter instancesSet cannot be used with the parameter maxResults");
    assert_int_equal(aws_page_begin(&call, &spec, (struct opt_i64){0}, STR_NONE, &page, NULL),
                     0);
}

/* ---- ids ---- */

static const void *find_id(void *ctx, struct str id)
{
    (*(int *)ctx)++;
    return str_has_suffix(id, STR("0")) ? id.p : NULL; /* those that end in 0 are there */
}

static void test_ids(void **state)
{
    static const struct {
        enum aws_id_kind kind;
        const char *ids, *name, *msg;
    } cases[] = {
        {AWS_ID_INSTANCE, "i-01234560 i-0123456789abcdef0", "", ""},
        {AWS_ID_INSTANCE, "i-0123", "InvalidInstanceID.Malformed",
         "Invalid id: \"i-0123\" (expecting \"i-...\")"},
        {AWS_ID_INSTANCE, "i-0123456789ABCDEF0", "InvalidInstanceID.Malformed",
         "Invalid id: \"i-0123456789ABCDEF0\" (expecting \"i-...\")"},
        {AWS_ID_INSTANCE, "vol-01234560", "InvalidInstanceID.Malformed",
         "Invalid id: \"vol-01234560\" (expecting \"i-...\")"},
        {AWS_ID_INSTANCE, "i-01234567", "InvalidInstanceID.NotFound",
         "The instance ID 'i-01234567' does not exist"},
        {AWS_ID_INSTANCE, "i-01234567 i-01234560 i-0123456789abcdef1 i-01234567",
         "InvalidInstanceID.NotFound",
         "The instance IDs 'i-01234567, i-0123456789abcdef1' do not exist"},
        {AWS_ID_VOLUME, "vol-01234567", "InvalidVolume.NotFound",
         "The volume 'vol-01234567' does not exist."},
        {AWS_ID_IMAGE, "ami-01234567", "InvalidAMIID.NotFound",
         "The image id '[ami-01234567]' does not exist"},
        {AWS_ID_IMAGE, "ami-01234567 ami-01234568", "InvalidAMIID.NotFound",
         "The image ids '[ami-01234567, ami-01234568]' do not exist"},
        {AWS_ID_SECURITY_GROUP, "sg-01234567", "InvalidGroup.NotFound",
         "The security group 'sg-01234567' does not exist"},
        {AWS_ID_SECURITY_GROUP, "sg", "InvalidGroupId.Malformed",
         "Invalid id: \"sg\" (expecting \"sg-...\")"},
        {AWS_ID_SUBNET, "subnet-01234567", "InvalidSubnetID.NotFound",
         "The subnet ID 'subnet-01234567' does not exist"},
        {AWS_ID_VPC, "vpc-01234567", "InvalidVpcID.NotFound",
         "The vpc ID 'vpc-01234567' does not exist"},
        {AWS_ID_ENI, "eni-01234567", "InvalidNetworkInterfaceID.NotFound",
         "The networkInterface ID 'eni-01234567' does not exist"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct aws_str_list ids = {0};
        struct str rest = str_c(cases[i].ids);
        AWS_LIST_MAKE(arena, &ids, 8);
        ids.n = 0;
        while (str_is_set(rest) && str_next(&rest, ' ', &ids.v[ids.n])) {
            ids.n++;
        }
        const void **found = NULL;
        size_t n = 0;
        int n_asked = 0;
        struct err err = ERR_INIT;
        int rc =
            aws_ids_resolve(cases[i].kind, &ids, find_id, &n_asked, arena, &found, &n, &err);
        assert_int_equal(rc == 0, cases[i].name[0] == '\0');
        if (rc < 0) {
            assert_string_equal(err.name, cases[i].name);
            assert_string_equal(err.msg, cases[i].msg);
        } else {
            assert_int_equal(n, 2);
        }
    }
    enum aws_id_kind k;
    for (int i = 0; i < AWS_ID_N; i++) { /* every kind has all its words */
        struct str id =
            arena_fmt(arena, "%s-0123456789abcdef0", aws_id_prefix((enum aws_id_kind)i));
        assert_int_equal(aws_id_kind_of(id, &k), 0);
        assert_int_equal(k, i);
        assert_int_equal(aws_id_check(k, id, NULL), 0);
        assert_non_null(aws_id_resource_type(k));
        struct err err = ERR_INIT;
        assert_int_equal(aws_id_not_found(k, &id, 1, &err), -ENOENT);
        assert_int_equal(aws_error_status(NULL, err.name), 400);
    }
    assert_int_equal(aws_id_kind_of(STR("nope-1"), &k), -ENOENT);
    assert_int_equal(aws_id_kind_of(STR("i"), &k), -ENOENT);
    struct str many[100];
    for (size_t i = 0; i < ARRAY_LEN(many); i++) {
        many[i] = arena_fmt(arena, "i-%08zx", i);
    }
    struct err err = ERR_INIT;
    aws_id_not_found(AWS_ID_INSTANCE, many, ARRAY_LEN(many), &err);
    assert_true(str_has_suffix(str_c(err.msg), STR(", ...' do not exist")));
}

/* ---- the rest ---- */

static void test_arn(void **state)
{
    struct arn n;
    assert_int_equal(arn_parse(STR("arn:aws:iam::123456789012:user/a:b/c"), &n), 0);
    assert_str(n.service, "iam");
    assert_str(n.region, "");
    assert_str(n.resource, "user/a:b/c");
    static const char *const bad[] = {"",
                                      "arn",
                                      "arn:aws:iam::1",
                                      "arn:aws:iam::1:",
                                      "x:aws:iam::1:r",
                                      "arn::iam::1:r",
                                      "arn:aws:::1:r"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(arn_parse(str_c(bad[i]), &n), -EINVAL);
    }
    assert_str(arn_ec2(arena, STR("r"), STR("1"), "instance", STR("i-1")),
               "arn:aws:ec2:r:1:instance/i-1");
    assert_str(arn_make(arena, STR("iam"), STR(""), STR("1"), STR("root")),
               "arn:aws:iam::1:root");
}

static void test_xml(void **state)
{
    static const struct {
        struct str in;
        const char *want;
    } cases[] = {
        {STR("plain"), "plain"},
        {STR("<a href=\"x\">&'</a>"), "&lt;a href=&quot;x&quot;&gt;&amp;'&lt;/a&gt;"},
        {STR("a\r\nb\tc"), "a&#13;\nb\tc"},
        {STR("\x01x\x1f"), "\xef\xbf\xbdx\xef\xbf\xbd"},
        {STR("a\0b"), "a\xef\xbf\xbd"
                      "b"},
        {STR("\xc3\xa9\xf0\x9f\x98\x80"), "\xc3\xa9\xf0\x9f\x98\x80"},
        {STR("\xc3"), "\xef\xbf\xbd"},
        {STR("\xff\xfe"), "\xef\xbf\xbd\xef\xbf\xbd"},
        {STR("\xed\xa0\x80"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
        {STR("\xef\xbf\xbf"), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* U+FFFF */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        AUTO_BUF out;
        buf_init(&out, 1000);
        xml_text(&out, cases[i].in);
        assert_str(buf_str(&out), cases[i].want);
    }
}

static void test_errors(void **state)
{
    static const struct {
        const char *code;
        int status;
    } cases[] = {{"InvalidInstanceID.NotFound", 400},
                 {"AuthFailure", 401},
                 {"UnauthorizedOperation", 403},
                 {"DryRunOperation", 412},
                 {"InsufficientInstanceCapacity", 500},
                 {"Unavailable", 503},
                 {"DependencyViolation", 400},
                 {"VolumeInUse", 400},
                 {"IncorrectInstanceState", 400},
                 {"InvalidKeyPair.Duplicate", 400},
                 {"OpenFailed", 0},
                 {"TxnConflict", 0},
                 {"KeyNotFound", 0},
                 {"BadRecord", 0}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        assert_int_equal(aws_error_status(NULL, cases[i].code), cases[i].status);
    }
    struct err err = ERR_INIT;
    fail(&err, -EPERM, "AccessDenied", "the store refused");
    assert_int_equal(aws_error_show(&aws_service_ec2, &err).status, 500);
    static const char *const outages[] = {"Unavailable", "Interrupted", "SlowDown",
                                          "NotYetSeen"};
    for (size_t i = 0; i < ARRAY_LEN(outages); i++) {
        err_clear(&err);
        fail(&err, -EIO, outages[i], "/run/x/state.sock: nothing to show to anybody");
        struct aws_error_out shown = aws_error_show(&aws_service_ec2, &err);
        assert_int_equal(shown.status, 503);
        assert_string_equal(shown.code, "Unavailable");
        assert_null(strstr(shown.msg, "state.sock"));
    }
    err_clear(&err);
    fail(&err, -EINVAL, "InvalidParameterValue", "a < b");
    struct aws_error_out e = aws_error_show(&aws_service_ec2, &err);
    AUTO_BUF out;
    buf_init(&out, 1000);
    aws_error_body(&aws_service_ec2, &e, STR("id"), &out);
    assert_str(
        buf_str(&out),
        "<?xml version=\"1.0\" "
        "encoding=\"UTF-8\"?>\n<Response><Errors><Error><Code>InvalidParameterValue</Code>"
        "<Message>a &lt; b</Message></Error></Errors><RequestID>id</RequestID></Response>");
}

static void test_policy(void **state)
{
    static const struct str a1[] = {{"EC2:Describe*", 13}}, a2[] = {{"ec2:*", 5}},
                            r1[] = {{"*", 1}}, r2[] = {{"arn:aws:ec2:*:1:instance/i-?", 28}};
    const struct aws_statement st[] = {
        {.actions = a1, .n_actions = 1, .resources = r1, .n_resources = 1},
        {.actions = a2, .n_actions = 1, .resources = r2, .n_resources = 1},
        {.is_deny = true,
         .actions = a2,
         .n_actions = 1,
         .resources = r2 + 0,
         .n_resources = 1}};
    const struct str i1 = STR("arn:aws:ec2:r:1:instance/i-1"),
                     i22 = STR("arn:aws:ec2:r:1:instance/i-22");
    const struct str both[] = {i1, i22};
    struct str where = STR_NONE;
    struct aws_authz z = {.action = STR("ec2:StartInstances"), .arns = both, .n_arns = 1};
    assert_int_equal(aws_evaluate(&z, st, 2, NULL), AWS_ALLOWED);
    z.n_arns = 2; /* each resource needs its allow */
    assert_int_equal(aws_evaluate(&z, st, 2, &where), AWS_DENIED_BY_DEFAULT);
    assert_str(where, i22.p);
    assert_int_equal(aws_evaluate(&z, st, 3, &where), AWS_DENIED_EXPLICITLY);
    assert_str(where, i1.p);
    z.action = STR("ec2:DescribeInstances");
    assert_int_equal(aws_evaluate(&z, st, 2, NULL), AWS_ALLOWED);
    assert_int_equal(aws_evaluate(&z, st, 0, NULL), AWS_DENIED_BY_DEFAULT);
    z.n_arns = 0;
    assert_int_equal(aws_evaluate(&z, st, 2, NULL), AWS_DENIED_BY_DEFAULT);
}

/* ---- the resources of calls ---- */

static void assert_arns(int op, const void *input, const char *const *want, size_t n_want)
{
    const struct aws_call call = {.arena = arena,
                                  .account = STR("1"),
                                  .region = STR("r"),
                                  .service = &aws_service_ec2,
                                  .op = op};
    const struct str *arns = NULL;
    size_t n = 0;
    aws_call_arns(&call, input, &arns, &n);
    assert_int_equal(n, n_want);
    for (size_t i = 0; i < n; i++) {
        assert_str(arns[i], want[i]);
    }
}

static void test_resources_of_calls(void **state)
{
    struct ec2_create_volume_request make = {.size = some_i64(1)};
    static const char *const empty[] = {"arn:aws:ec2:r:1:volume/*"};
    assert_arns(EC2_OP_CREATE_VOLUME, &make, empty, 1); /* absent, and nothing is asked of it */
    make.snapshot_id = STR("snap-1");
    static const char *const of[] = {"arn:aws:ec2:r:1:volume/*",
                                     "arn:aws:ec2:r::snapshot/snap-1"};
    assert_arns(EC2_OP_CREATE_VOLUME, &make, of, 2);

    struct ec2_instance_specification spec = {.instance_id = STR("i-1")};
    struct ec2_create_snapshots_request multi = {.instance_specification = &spec};
    static const char *const many[] = {"arn:aws:ec2:r::snapshot/*", "arn:aws:ec2:r:1:volume/*",
                                       "arn:aws:ec2:r:1:instance/i-1"};
    assert_arns(EC2_OP_CREATE_SNAPSHOTS, &multi, many, 3);
    multi.instance_specification = NULL;
    static const char *const any[] = {"arn:aws:ec2:r::snapshot/*", "arn:aws:ec2:r:1:volume/*",
                                      "arn:aws:ec2:r:1:instance/*"};
    assert_arns(EC2_OP_CREATE_SNAPSHOTS, &multi, any, 3);

    struct ec2_ebs_block_device ebs[] = {{.snapshot_id = STR("snap-1")},
                                         {.volume_size = some_i64(1)},
                                         {.snapshot_id = STR("snap-3")}};
    struct ec2_block_device_mapping m[] = {
        {.ebs = &ebs[0]}, {.ebs = &ebs[1]}, {.virtual_name = STR("x")}, {.ebs = &ebs[2]}};
    struct ec2_register_image_request reg = {.block_device_mappings = {m, 4, true}};
    static const char *const both[] = {"arn:aws:ec2:r::image/*",
                                       "arn:aws:ec2:r::snapshot/snap-1",
                                       "arn:aws:ec2:r::snapshot/snap-3"};
    assert_arns(EC2_OP_REGISTER_IMAGE, &reg, both, 3);

    struct str ids[] = {STR("i-1"), STR("i-2")};
    const struct ec2_stop_instances_request stop = {.instance_ids = {ids, 2, true}};
    static const char *const two[] = {"arn:aws:ec2:r:1:instance/i-1",
                                      "arn:aws:ec2:r:1:instance/i-2"};
    assert_arns(EC2_OP_STOP_INSTANCES, &stop, two, 2);
    static const char *const star[] = {"*"};
    assert_arns(EC2_OP_DESCRIBE_VOLUMES, NULL, star, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_filters, reset),
        cmocka_unit_test_setup(test_bad_filters, reset),
        cmocka_unit_test_setup(test_pages, reset),
        cmocka_unit_test_setup(test_page_ranges, reset),
        cmocka_unit_test_setup(test_ids, reset),
        cmocka_unit_test_setup(test_arn, reset),
        cmocka_unit_test_setup(test_xml, reset),
        cmocka_unit_test_setup(test_errors, reset),
        cmocka_unit_test_setup(test_policy, reset),
        cmocka_unit_test_setup(test_resources_of_calls, reset),
    };
    arena = arena_new(16u << 20);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    arena_free(arena);
    return rc;
}

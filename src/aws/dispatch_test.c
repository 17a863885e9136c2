#include "aws/dispatch.h"

#include "aws/api/ec2.h"
#include "aws/api/ec2_handlers.h"
#include "aws/api/sts.h"
#include "base/test.h"
#include "base/time.h"
#include "crypto/digest.h"
#include <errno.h>
#include <stdio.h>
#include <zlib.h>

#define SECRET "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
#define NOW_NS (UINT64_C(1796049000) * NS_PER_S) /* 2026-11-30T14:30:00Z */
#define V_EC2  "&Version=2016-11-15"
#define V_STS  "&Version=2011-06-15"

struct fixture {
    struct arena *a;
    struct aws_dispatch d;
    struct aws_answer ans;
    unsigned n_calls, n_conflicts;
    const struct aws_statement *policy;
    size_t n_policy;
};

/* ---- handlers of the test ---- */

static int run_instances(struct aws_call *call, const void *input, void *output,
                         struct err *err)
{
    struct fixture *f = call->app;
    const struct ec2_run_instances_request *in = input;
    struct ec2_reservation *out = output;
    f->n_calls++;
    int rc = aws_dry_run(call, err);
    if (rc < 0) {
        return rc;
    }
    if (f->n_conflicts > 0) {
        f->n_conflicts--;
        return fail(err, -EAGAIN, "TxnConflict", "somebody was faster");
    }
    out->owner_id = call->account;
    AWS_LIST_MAKE(call->arena, &out->instances, (size_t)in->max_count.v);
    for (size_t i = 0; i < out->instances.n; i++) {
        out->instances.v[i].instance_id = STR("i-0123456789abcdef0");
        out->instances.v[i].image_id = in->image_id;
    }
    return 0;
}

static int describe_key_pairs(struct aws_call *call, const void *input, void *output,
                              struct err *err)
{
    ((struct fixture *)call->app)->n_calls++;
    return 0;
}

static int delete_tags(struct aws_call *call, const void *input, void *output, struct err *err)
{
    ((struct fixture *)call->app)->n_calls++;
    return 0;
}

static int start_instances(struct aws_call *call, const void *input, void *output,
                           struct err *err)
{
    return fail(err, -EIO, "OpenFailed", "/var/lib/secret/path: no such file");
}

static int reboot_instances(struct aws_call *call, const void *input, void *output,
                            struct err *err)
{
    return -EIO; /* forgot to say why */
}

static int get_caller_identity(struct aws_call *call, const void *input, void *output,
                               struct err *err)
{
    struct sts_get_caller_identity_response *out = output;
    out->user_id = call->who.user_id;
    out->account = call->account;
    out->arn = call->who.arn;
    return 0;
}

static const aws_handler_fn ec2_table[EC2_OP_N] = {
    [EC2_OP_RUN_INSTANCES] = run_instances,
    [EC2_OP_DESCRIBE_KEY_PAIRS] = describe_key_pairs,
    [EC2_OP_DELETE_TAGS] = delete_tags,
    [EC2_OP_START_INSTANCES] = start_instances,
    [EC2_OP_REBOOT_INSTANCES] = reboot_instances,
};
static const aws_handler_fn sts_table[STS_OP_N] = {[STS_OP_GET_CALLER_IDENTITY] =
                                                       get_caller_identity};
static const struct aws_endpoint endpoints[] = {{&aws_service_ec2, ec2_table},
                                                {&aws_service_sts, sts_table}};

static int find_key(void *ctx, struct arena *a, struct str access_key, struct aws_key *ret,
                    struct err *err)
{
    bool is_admin = str_eqc(access_key, "AKIDADMIN");
    if (str_eqc(access_key, "AKIDBROKEN")) {
        return fail(err, -EIO, "ReadFailed", "the store is gone");
    }
    if (!is_admin && !str_eqc(access_key, "AKIDBOB")) {
        return -ENOENT;
    }
    *ret =
        (struct aws_key){.who = {.account = STR("123456789012"),
                                 .arn = is_admin ? STR("arn:aws:iam::123456789012:user/admin")
                                                 : STR("arn:aws:iam::123456789012:user/bob"),
                                 .user_id = STR("AIDAEXAMPLE"),
                                 .user_name = is_admin ? STR("admin") : STR("bob")},
                         .secret = STR(SECRET),
                         .session_token = STR_NONE,
                         .is_active = true};
    return 0;
}

static int policy_of(void *ctx, const struct aws_principal *who, struct arena *a,
                     const struct aws_statement **ret, size_t *ret_n, struct err *err)
{
    const struct fixture *f = ctx;
    if (!f->policy) {
        return aws_policy_builtin(NULL, who, a, ret, ret_n, err);
    }
    *ret = f->policy;
    *ret_n = f->n_policy;
    return 0;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    f->a = arena_new(AWS_ARENA_MAX);
    f->d = (struct aws_dispatch){.endpoints = endpoints,
                                 .n_endpoints = ARRAY_LEN(endpoints),
                                 .region = STR("ap-southeast-2"),
                                 .partition = STR("aws"),
                                 .key_find = find_key,
                                 .policy = policy_of,
                                 .policy_ctx = f,
                                 .cache = sigv4_cache_new(16),
                                 .page_key = STR("0123456789abcdef0123456789abcdef"),
                                 .app = f};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    aws_answer_done(&f->ans);
    sigv4_cache_free(f->d.cache);
    arena_free(f->a);
    free(f);
    return 0;
}

struct ask {
    const char *key, *service, *region, *coding;
    struct str body, query;
    uint64_t late_ns;
    bool is_unsigned, is_get;
};

/* Signs, runs, and leaves the answer in f->ans; returns its body. */
static const char *ask(struct fixture *f, const struct ask *q)
{
    char date[TIME_ISO_SIZE], hex[2 * SHA256_SIZE + 1];
    uint8_t hash[SHA256_SIZE];
    time_basic(NOW_NS, date);
    struct http_header headers[5] = {{STR("Host"), STR("localhost:9999")},
                                     {STR("X-Amz-Date"), str_c(date)}};
    size_t n = 2;
    if (q->coding) {
        headers[n++] = (struct http_header){STR("Content-Encoding"), str_c(q->coding)};
    }
    struct aws_http rq = {.method = q->is_get ? STR("GET") : STR("POST"),
                          .path = STR("/"),
                          .query = q->query,
                          .headers = headers,
                          .n_headers = n,
                          .body = q->body.p ? q->body : STR(""),
                          .source_ip = STR("192.0.2.1"),
                          .is_tls = true,
                          .now_ns = NOW_NS};
    struct sigv4_auth auth = {.access_key = str_c(q->key ? q->key : "AKIDADMIN"),
                              .date = str_n(date, 8),
                              .region = str_c(q->region ? q->region : "ap-southeast-2"),
                              .service = str_c(q->service ? q->service : "ec2"),
                              .signed_headers = STR("host;x-amz-date"),
                              .amz_date = str_c(date)};
    sha256(rq.body, hash);
    digest_hex(hash, sizeof(hash), hex);
    if (!q->is_unsigned) {
        headers[n++] = (struct http_header){
            STR("Authorization"), sigv4_sign(f->a, &rq, STR(SECRET), &auth, 0, str_c(hex))};
    }
    rq.n_headers = n;
    rq.now_ns += q->late_ns;
    aws_answer_done(&f->ans);
    aws_dispatch_run(&f->d, f->a, &rq, &f->ans);
    return buf_cstr(&f->ans.body);
}

static const char *post(struct fixture *f, const char *body)
{
    return ask(f, &(struct ask){.body = str_c(body)});
}

static void expect(struct fixture *f, const char *body, int status, const char *part)
{
    if (f->ans.status != status || !strstr(body, part)) {
        fail_msg("wanted %d and '%s', got %d %s", status, part, f->ans.status, body);
    }
}

/* ---- tests ---- */

static void test_identity(void **state)
{
    struct fixture *f = *state;
    const char *b =
        ask(f, &(struct ask){.service = "sts", .body = STR("Action=GetCallerIdentity" V_STS)});
    expect(f, b, 200,
           "<GetCallerIdentityResponse "
           "xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><GetCallerIdentityResult>"
           "<UserId>AIDAEXAMPLE</UserId><Account>123456789012</"
           "Account><Arn>arn:aws:iam::123456789012:user/admin</Arn>"
           "</GetCallerIdentityResult><ResponseMetadata><RequestId>");
    expect(f, b, 200, f->ans.call.request_id.p);
    assert_int_equal(f->ans.call.request_id.n, 36);
    /* Needs no permission, and clients sign it for us-east-1 too. */
    b = ask(f, &(struct ask){.service = "sts",
                             .key = "AKIDBOB",
                             .region = "us-east-1",
                             .body = STR("Action=GetCallerIdentity" V_STS)});
    expect(f, b, 200, "user/bob</Arn>");
    b = ask(f, &(struct ask){.service = "sts",
                             .is_get = true,
                             .query = STR("Action=GetCallerIdentity" V_STS)});
    expect(f, b, 200, "<Account>123456789012</Account>");
}

static void test_run_instances(void **state)
{
    struct fixture *f = *state;
    const char *b = post(f, "Action=RunInstances&ImageId=ami-1&MinCount=1&MaxCount=2" V_EC2);
    expect(
        f, b, 200,
        "<RunInstancesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>");
    expect(f, b, 200,
           "<instancesSet><item><instanceId>i-0123456789abcdef0</instanceId><imageId>ami-1</"
           "imageId></item><item>");
    assert_string_equal(f->ans.content_type, "text/xml;charset=UTF-8");
    /* A lost transaction runs again, with a clean output. */
    f->n_calls = 0;
    f->n_conflicts = 3;
    b = post(f, "Action=RunInstances&ImageId=ami-1&MinCount=1&MaxCount=1" V_EC2);
    expect(f, b, 200, "<instanceId>i-0123456789abcdef0</instanceId>");
    assert_int_equal(f->n_calls, 4);
    f->n_conflicts = 1000;
    b = post(f, "Action=RunInstances&ImageId=ami-1&MinCount=1&MaxCount=1" V_EC2);
    expect(f, b, 503, "<Code>Unavailable</Code>");
}

static void test_sets_and_returns(void **state)
{
    struct fixture *f = *state;
    expect(f, post(f, "Action=DescribeKeyPairs" V_EC2), 200,
           "</requestId><keySet/></DescribeKeyPairsResponse>");
    expect(f, post(f, "Action=DeleteTags&ResourceId.1=i-0123456789abcdef0" V_EC2), 200,
           "</requestId><return>true</return></DeleteTagsResponse>");
}

static void test_dry_run(void **state)
{
    struct fixture *f = *state;
    const char *b =
        post(f, "Action=RunInstances&ImageId=ami-1&MinCount=1&MaxCount=1&DryRun=true" V_EC2);
    expect(f, b, 412,
           "<Response><Errors><Error><Code>DryRunOperation</Code><Message>Request would have "
           "succeeded, but DryRun flag "
           "is set.</Message></Error></Errors><RequestID>");
    expect(f, post(f, "Action=DescribeKeyPairs&DryRun=true" V_EC2), 412, "DryRunOperation");
    expect(f, post(f, "Action=DescribeKeyPairs&DryRun=false" V_EC2), 200, "<keySet/>");
    /* What is missing comes first. */
    expect(f, post(f, "Action=RunInstances&ImageId=ami-1&MaxCount=1&DryRun=true" V_EC2), 400,
           "parameter MinCount<");
}

static void test_actions(void **state)
{
    static const struct {
        const char *body, *want;
        int status;
    } cases[] = {
        {"Action=Nonsense" V_EC2,
         "<Code>InvalidAction</Code><Message>The action Nonsense is not valid for this web "
         "service.<",
         400},
        {"Action=CreateTransitGateway" V_EC2, "<Code>InvalidAction</Code>",
         400}, /* in the model, not here */
        {"Action=runinstances" V_EC2, "<Code>InvalidAction</Code>", 400},
        {"Action=%3Cx%3E" V_EC2, "The action &lt;x&gt; is not", 400},
        {"Action=DescribeKeyPairs&Version=2016-11-14", "<Code>NoSuchVersion</Code>", 400},
        {"Action=DescribeKeyPairs", "<Code>NoSuchVersion</Code>", 400},
        {"Version=2016-11-15", "<Code>MissingAction</Code>", 400},
        {"Action=" V_EC2, "<Code>MissingAction</Code>", 400},
        {"Action=DescribeKeyPairs&Wrong=1" V_EC2,
         "<Code>UnknownParameter</Code><Message>The parameter Wrong is not recognized<", 400},
        {"Action=RunInstances&MaxCount=1" V_EC2,
         "<Code>MissingParameter</Code><Message>The request must contain the parameter "
         "MinCount<",
         400},
        {"Action=DescribeKeyPairs&X=%zz" V_EC2, "<Code>MalformedQueryString</Code>", 400},
        {"Action=StartInstances&InstanceId.1=i-1" V_EC2,
         "<Code>InternalError</Code><Message>An internal error has occurred<", 500},
        {"Action=RebootInstances&InstanceId.1=i-1" V_EC2, "<Code>InternalError</Code>", 500},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *b = post(f, cases[i].body);
        expect(f, b, cases[i].status, cases[i].want);
        assert_null(strstr(b, "secret/path"));
        assert_true(f->ans.err.code < 0);
    }
    assert_int_equal(f->n_calls, 0);
}

static void test_who(void **state)
{
    static const struct {
        struct ask q;
        int status;
        const char *want;
    } cases[] = {
        {{.key = "AKIDNOBODY"},
         401,
         "<Code>AuthFailure</Code><Message>AWS was not able to validate the provided access "
         "credentials<"},
        {{.key = "AKIDNOBODY", .service = "sts"},
         403,
         "<Code>InvalidClientTokenId</Code><Message>The security token included in the "},
        {{.key = "AKIDBROKEN"}, 500, "<Code>InternalError</Code>"},
        {{.region = "us-east-1"},
         401,
         "<Code>AuthFailure</Code><Message>Credential should be scoped to a valid region"},
        {{.region = "eu-west-1", .service = "sts"}, 403, "<Code>SignatureDoesNotMatch</Code>"},
        {{.service = "dynamodb"},
         403,
         "<Code>SignatureDoesNotMatch</Code><Message>Credential should be scoped to correct "
         "service"},
        {{.late_ns = 901 * NS_PER_S}, 400, "<Code>RequestExpired</Code>"},
        {{.late_ns = 901 * NS_PER_S, .service = "sts"},
         403,
         "<Code>SignatureDoesNotMatch</Code><Message>Signature expired: "},
        {{.is_unsigned = true}, 403, "<Code>MissingAuthenticationToken</Code>"},
        {{.key = "AKIDBOB"},
         403,
         "<Code>UnauthorizedOperation</Code><Message>You are not authorized to perform this "
         "operation. User: "
         "arn:aws:iam::123456789012:user/bob is not authorized to perform: "
         "ec2:DescribeKeyPairs on resource: * because no "
         "identity-based policy allows the action<"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct ask q = cases[i].q;
        q.body = q.service ? STR("Action=GetCallerIdentity" V_STS)
                           : STR("Action=DescribeKeyPairs" V_EC2);
        expect(f, ask(f, &q), cases[i].status, cases[i].want);
    }
    assert_int_equal(f->n_calls, 0);
    /* A stranger learns nothing about operations; somebody without permission neither. */
    struct ask q = {.key = "AKIDBOB", .body = STR("Action=Nonsense" V_EC2)};
    expect(f, ask(f, &q), 403, "UnauthorizedOperation");
    q.body = STR("Action=DescribeKeyPairs&Wrong=1" V_EC2);
    expect(f, ask(f, &q), 403, "UnauthorizedOperation");
    /* The form of the error follows the Version when no service was named. */
    q = (struct ask){.is_unsigned = true, .body = STR("Action=X" V_EC2)};
    expect(f, ask(f, &q), 403, "<Response><Errors>");
    q.body = STR("Action=X" V_STS);
    expect(f, ask(f, &q), 403, "<ErrorResponse xmlns=\"https://sts");
    q.body = STR("");
    expect(f, ask(f, &q), 403, "<ErrorResponse><Error><Type>Sender</Type>");
}

static void test_policy(void **state)
{
    static const struct str run[] = {{"ec2:run*", 8}}, all[] = {{"*", 1}};
    static const struct str ami1[] = {{"arn:aws:ec2:ap-southeast-2::image/ami-1", 39},
                                      {"arn:aws:ec2:ap-southeast-2:123456789012:*", 41}};
    static const struct str ami2[] = {{"arn:*image/ami-2", 16}};
    static const struct aws_statement two[] = {
        {.actions = run, .n_actions = 1, .resources = ami1, .n_resources = 2}};
    static const struct aws_statement deny[] = {
        {.actions = all, .n_actions = 1, .resources = all, .n_resources = 1},
        {.is_deny = true, .actions = run, .n_actions = 1, .resources = ami2, .n_resources = 1}};
    struct fixture *f = *state;
    struct ask q = {.key = "AKIDBOB",
                    .body =
                        STR("Action=RunInstances&ImageId=ami-1&MinCount=1&MaxCount=1" V_EC2)};
    f->policy = two;
    f->n_policy = ARRAY_LEN(two);
    expect(f, ask(f, &q), 200, "<instancesSet>");
    q.body = STR("Action=RunInstances&ImageId=ami-2&MinCount=1&MaxCount=1" V_EC2);
    expect(f, ask(f, &q), 403, "on resource: arn:aws:ec2:ap-southeast-2::image/ami-2 because");
    f->policy = deny;
    f->n_policy = ARRAY_LEN(deny);
    expect(f, ask(f, &q), 403, "with an explicit deny");
    q.body = STR("Action=RunInstances&ImageId=ami-1&MinCount=1&MaxCount=1" V_EC2);
    expect(f, ask(f, &q), 200, "<instancesSet>");
    q.key = "AKIDADMIN"; /* a policy that is there counts for everybody */
    q.body = STR("Action=RunInstances&ImageId=ami-2&MinCount=1&MaxCount=1" V_EC2);
    expect(f, ask(f, &q), 403, "with an explicit deny");
}

static struct str squeeze(struct arena *a, struct str plain)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
    size_t cap = plain.n + 1024;
    unsigned char *p = arena_xalloc(a, cap), *in = arena_xalloc(a, plain.n + 1);
    memcpy(in, plain.p, plain.n);
    z.next_in = in;
    z.avail_in = (unsigned)plain.n;
    z.next_out = p;
    z.avail_out = (unsigned)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t n = cap - z.avail_out;
    deflateEnd(&z);
    return str_n((char *)p, n);
}

static void test_gzip(void **state)
{
    struct fixture *f = *state;
    struct str z = squeeze(f->a, STR("Action=DescribeKeyPairs" V_EC2));
    expect(f, ask(f, &(struct ask){.body = z, .coding = "gzip"}), 200, "<keySet/>");
    expect(f, ask(f, &(struct ask){.body = str_n(z.p, z.n - 1), .coding = "gzip"}), 400,
           "<Code>MalformedInput</Code>");
    expect(f, ask(f, &(struct ask){.body = z, .coding = "br"}), 400,
           "<Code>MalformedInput</Code>");
    expect(f, ask(f, &(struct ask){.body = z}), 400, "<Code>"); /* not said to be gzip */
    size_t n = 40u << 20; /* small on the wire, large when it is blown up */
    char *bomb = arena_xalloc(f->a, n);
    memset(bomb, 'a', n);
    z = squeeze(f->a, str_n(bomb, n));
    assert_true(z.n < AWS_MAX_BODY);
    expect(f, ask(f, &(struct ask){.body = z, .coding = "gzip"}), 413,
           "<Code>RequestEntityTooLarge</Code>");
    expect(f, ask(f, &(struct ask){.body = str_n(bomb, AWS_MAX_BODY + 1)}), 413,
           "<Code>RequestEntityTooLarge</Code>");
}

static void test_endpoint_check(void **state)
{
    struct err err = ERR_INIT;
    assert_int_equal(aws_endpoint_check(&endpoints[1], &err), 0);
    assert_int_equal(aws_endpoint_check(&endpoints[0], &err), -EINVAL);
    assert_string_equal(err.name, "BadHandlers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_identity, setup, teardown),
        cmocka_unit_test_setup_teardown(test_run_instances, setup, teardown),
        cmocka_unit_test_setup_teardown(test_sets_and_returns, setup, teardown),
        cmocka_unit_test_setup_teardown(test_dry_run, setup, teardown),
        cmocka_unit_test_setup_teardown(test_actions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_who, setup, teardown),
        cmocka_unit_test_setup_teardown(test_policy, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gzip, setup, teardown),
        cmocka_unit_test_setup_teardown(test_endpoint_check, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* One ClientToken, one thing: replays, changed parameters, old claims, and many threads at once
 * on a real store. */
#include "aws/token.h"

#include "aws/api/ec2.h"
#include "base/test.h"
#include "base/time.h"
#include "testkit/tmpdir.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#define NOW_NS (UINT64_C(1796049000) * NS_PER_S)

static struct kv *kv;

static struct aws_call call_of(struct arena *a, const char *account)
{
    return (struct aws_call){.arena = a,
                             .account = str_c(account),
                             .service = &aws_service_ec2,
                             .op = EC2_OP_RUN_INSTANCES,
                             .op_name = STR("RunInstances"),
                             .now_ns = NOW_NS};
}

static struct ec2_run_instances_request input_of(const char *image)
{
    return (struct ec2_run_instances_request){
        .image_id = str_c(image), .min_count = some_i64(1), .max_count = some_i64(1)};
}

/* What a handler does: begin, and write the claim with the thing itself. */
static int launch(struct aws_call *call, const char *token,
                  const struct ec2_run_instances_request *in, const char *thing,
                  struct str *ret, struct err *err)
{
    struct aws_token tok;
    int rc = aws_token_begin(call, kv, str_c(token), in, &tok, err);
    if (rc < 0) {
        return rc;
    }
    if (tok.is_replay) {
        *ret = tok.result;
        return 0;
    }
    struct kv_cmp cmp[] = {{tok.key, tok.mod_rev}};
    struct kv_op op[] = {
        {KV_PUT, arena_fmt(call->arena, "spec/instance/%.*s/%s", STR_ARG(call->account), thing),
         STR("{}"), 0},
        {KV_PUT, tok.key, tok.key.p ? aws_token_value(call, &tok, str_c(thing)) : STR_NONE, 0}};
    size_t n = tok.key.p ? 1 : 0;
    *ret = str_c(thing);
    uint64_t rev = 0;
    return kv_txn(kv, cmp, n, op, n + 1, &rev, err);
}

static void test_replay(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(16u << 20);
    struct aws_call call = call_of(a, "111111111111");
    struct ec2_run_instances_request in = input_of("ami-1"), other = input_of("ami-2");
    struct str got;
    struct err err = ERR_INIT;
    assert_int_equal(launch(&call, "token", &in, "i-1", &got, &err), 0);
    assert_str(got, "i-1");
    assert_int_equal(launch(&call, "token", &in, "i-2", &got, &err), 0);
    assert_str(got, "i-1");
    in.dry_run = some_bool(true); /* neither DryRun nor the token is a parameter */
    in.client_token = STR("token");
    assert_int_equal(launch(&call, "token", &in, "i-2", &got, &err), 0);
    assert_str(got, "i-1");
    assert_int_equal(launch(&call, "token", &other, "i-2", &got, &err), -EINVAL);
    assert_string_equal(err.name, "IdempotentParameterMismatch");
    err_clear(&err);
    assert_int_equal(launch(&call, "token2", &other, "i-2", &got, &err), 0); /* another token */
    assert_str(got, "i-2");
    struct aws_call stranger = call_of(a, "222222222222");
    assert_int_equal(launch(&stranger, "token", &other, "i-3", &got, &err),
                     0); /* another account */
    assert_str(got, "i-3");
    call.op = EC2_OP_CREATE_VOLUME;
    call.op_name = STR("CreateVolume");
    struct ec2_create_volume_request vol = {.availability_zone = STR("a")};
    struct aws_token tok;
    assert_int_equal(aws_token_begin(&call, kv, STR("token"), &vol, &tok, &err),
                     0); /* another operation */
    assert_false(tok.is_replay);
}

static void test_old_and_bad(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(16u << 20);
    struct aws_call call = call_of(a, "333333333333");
    struct ec2_run_instances_request in = input_of("ami-1"), other = input_of("ami-2");
    struct str got;
    struct aws_token tok;
    struct err err = ERR_INIT;
    char longer[66];
    assert_int_equal(launch(&call, "t", &in, "i-1", &got, &err), 0);
    call.now_ns += AWS_TOKEN_LIFE_NS + 1; /* forgotten: a new thing, under the same key */
    assert_int_equal(launch(&call, "t", &other, "i-2", &got, &err), 0);
    assert_str(got, "i-2");
    assert_int_equal(launch(&call, "t", &other, "i-3", &got, &err), 0);
    assert_str(got, "i-2");
    assert_int_equal(aws_token_begin(&call, kv, STR_NONE, &in, &tok, &err), 0);
    assert_false(str_is_set(tok.key));
    memset(longer, 'x', 65);
    longer[65] = '\0';
    assert_int_equal(aws_token_begin(&call, kv, str_c(longer), &in, &tok, &err), -EINVAL);
    assert_string_equal(err.name, "InvalidParameterValue");
    struct str value =
        aws_token_value(&call, &(struct aws_token){.hash = STR("h")}, STR("i-1"));
    assert_false(aws_token_is_old(value, call.now_ns + AWS_TOKEN_LIFE_NS));
    assert_true(aws_token_is_old(value, call.now_ns + AWS_TOKEN_LIFE_NS + 1));
    assert_false(aws_token_is_old(STR("not JSON"), call.now_ns));
}

enum { N_THREADS = 8, N_TOKENS = 20 };
static char results[N_THREADS][N_TOKENS][16];

static void *racer(void *arg)
{
    size_t me = (size_t)(uintptr_t)arg;
    for (int t = 0; t < N_TOKENS; t++) {
        char token[16], thing[16];
        snprintf(token, sizeof(token), "race-%d", t);
        snprintf(thing, sizeof(thing), "i-%zu-%d", me, t);
        int rc = -EAGAIN;
        while (rc == -EAGAIN) { /* what the dispatcher does */
            AUTO(arena_freep) struct arena *a = arena_new(16u << 20);
            struct aws_call call = call_of(a, "444444444444");
            struct ec2_run_instances_request in = input_of("ami-1");
            struct str got = STR_NONE;
            struct err err = ERR_INIT;
            rc = launch(&call, token, &in, thing, &got, &err);
            if (rc == 0) {
                snprintf(results[me][t], sizeof(results[me][t]), "%.*s", STR_ARG(got));
            }
        }
        if (rc < 0) {
            return NULL; /* the empty result is seen below */
        }
    }
    return NULL;
}

static void test_race(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(16u << 20);
    pthread_t th[N_THREADS];
    struct kv_list l;
    for (size_t i = 0; i < N_THREADS; i++) {
        assert_int_equal(pthread_create(&th[i], NULL, racer, (void *)(uintptr_t)i), 0);
    }
    for (size_t i = 0; i < N_THREADS; i++) {
        pthread_join(th[i], NULL);
    }
    for (int t = 0; t < N_TOKENS; t++) {
        assert_string_not_equal(results[0][t], "");
        for (size_t i = 1; i < N_THREADS; i++) {
            assert_string_equal(results[i][t],
                                results[0][t]); /* all were told of the same thing */
        }
    }
    assert_int_equal(kv_list(kv, a, STR("spec/instance/444444444444/"), STR_NONE, 0, &l, NULL),
                     0);
    assert_int_equal(l.n, N_TOKENS); /* and no other was made */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_replay),
                                       cmocka_unit_test(test_old_and_bad),
                                       cmocka_unit_test(test_race)};
    struct tmpdir dir;
    struct err err = ERR_INIT;
    char path[PATH_MAX];
    tmpdir_init(&dir, "token");
    if (kv_open_sqlite(tmpdir_path(&dir, "kv.db", path), &kv, &err) < 0) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    kv_close(kv);
    tmpdir_done(&dir);
    return rc;
}

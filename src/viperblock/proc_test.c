#include "base/time.h"
#include "codec/json.h"
#include "model/keys.h"
#include "viperblock/test_env.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>

/* Data processes that end, with a stand-in for the real one: who is blamed, who goes on. */

#define INST "i-00000000000000001"
#define GOOD "vol-00000000000000001"
#define BAD  "vol-0000000000000dead"

static struct tmpdir tmp;

static int setup(void **state)
{
    struct env *e = malloc(sizeof(*e));
    tmpdir_init(&tmp, "proc");
    env_init(e, tmp.path);
    env_start(e);
    *state = e;
    return 0;
}

static int teardown(void **state)
{
    env_stop(*state);
    env_end_processes(*state);
    free(*state);
    tmpdir_done(&tmp);
    return 0;
}

static void make(struct env *e, const char *id)
{
    struct volume v = {.id = str_c(id),
                       .account = STR(TEST_ACCOUNT),
                       .generation = 1,
                       .want = STR("present"),
                       .node = STR("node1"),
                       .size_gib = 1,
                       .type = STR("gp3"),
                       .instance_id = STR(INST)};
    env_put_volume(e, &v);
    env_wait_volume(e, id, "available");
}

static int try_open(struct env *e, const char *id, const char *more, struct err *err)
{
    char args[300];
    snprintf(args, sizeof(args),
             "{\"account\":\"" TEST_ACCOUNT "\",\"volume_id\":\"%s\",\"instance_id\":\"" INST
             "\",\"uid\":0,\"n_queues\":1%s}",
             id, more);
    err_clear(err);
    return env_call(e, "volume.open", args, NULL, err);
}

/* As compute asks: again while the answer is "not now". */
static int open_volume(struct env *e, const char *id, struct err *err)
{
    int rc = -EAGAIN;
    for (int i = 0; i < 1500 && rc == -EAGAIN; i++) {
        rc = try_open(e, id, "", err);
        usleep(rc == -EAGAIN ? 20000 : 0);
    }
    return rc;
}

static void wait_fault(struct env *e, const char *id, const char *want)
{
    const struct volume_status *st = NULL;
    for (int i = 0; i < 1500; i++) {
        st = env_wait_volume(e, id, "available");
        if (str_eqc(st->fault, want)) {
            assert_str(st->health, want[0] ? "impaired" : "ok");
            return;
        }
        usleep(20000);
    }
    fail_msg("the fault of %s is \"%.*s\"", id, STR_ARG(st->fault));
}

/* Its opening ends the process twice: it alone is faulted; the other is there again. */
static void who_crashes_twice_is_faulted_alone(void **state)
{
    struct env *e = *state;
    struct err err = ERR_INIT;
    struct str text;
    make(e, GOOD);
    make(e, BAD);
    assert_int_equal(open_volume(e, GOOD, &err), 0);
    assert_int_equal(open_volume(e, BAD, &err), -EIO);
    assert_string_equal(err.name, "VolumeFaulted");
    wait_fault(e, BAD, "crashed-twice");
    assert_int_equal(open_volume(e, GOOD, &err), 0);
    wait_fault(e, GOOD, "");
    assert_int_equal(env_n_processes(e), 1);
    /* looked at, it may be tried again */
    err_clear(&err);
    assert_int_equal(env_call(e, "volume.check", "{\"volume_id\":\"" BAD "\"}", &text, &err),
                     0);
    struct json *j = NULL;
    assert_int_equal(json_parse(text, &j, NULL), 0);
    assert_int_equal(json_get_u64(j, "repaired", 0), 1);
    assert_int_equal(json_len(json_get(j, "problems")), 0);
    json_free(j);
    wait_fault(e, BAD, "");
}

/* Somebody's kill is nobody's fault, however often. */
static void a_killed_process_faults_nobody(void **state)
{
    struct env *e = *state;
    struct err err = ERR_INIT;
    make(e, GOOD);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(open_volume(e, GOOD, &err), 0);
        env_end_processes(e);
    }
    assert_int_equal(open_volume(e, GOOD, &err), 0);
    wait_fault(e, GOOD, "");
    /* a new manager finds what the old one had, and one that died meanwhile is started again */
    env_stop(e);
    env_start(e);
    assert_int_equal(open_volume(e, GOOD, &err), 0);
    env_stop(e);
    env_end_processes(e);
    env_start(e);
    assert_int_equal(open_volume(e, GOOD, &err), 0);
    assert_int_equal(env_n_processes(e), 1);
}

static void bad_requests_change_nothing(void **state)
{
    static const struct {
        const char *method, *args, *want;
    } bad[] = {
        {"volume.open", "{}", "BadArgument"},
        {"volume.open", "[]", "BadArgument"},
        {"volume.close", "{\"account\":\"1\"}", "BadArgument"},
        {"volume.nbd", "{\"account\":\"" TEST_ACCOUNT "\",\"volume_id\":\"vol-../../..\"}",
         "BadArgument"},
        {"volume.nbd", "{\"account\":\"" TEST_ACCOUNT "\",\"volume_id\":\"" BAD "\"}",
         "InvalidVolume.NotFound"},
        {"volume.check", "{\"volume_id\":\"" BAD "\"}", "InvalidVolume.NotFound"},
        {"block.list", "{\"account\":\"" TEST_ACCOUNT "\",\"snapshot_id\":\"x\"}",
         "BadArgument"},
        {"block.get", "{}", "BadArgument"},
        {"block.put", "{}", "BadArgument"},
        {"volume.nonsense", "{}", "UnknownMethod"},
    };
    struct env *e = *state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct err err = ERR_INIT;
        assert_true(env_call(e, bad[i].method, bad[i].args, NULL, &err) < 0);
        assert_string_equal(err.name, bad[i].want);
    }
    struct err err = ERR_INIT;
    make(e, GOOD);
    assert_int_equal(try_open(e, GOOD, ",\"transport\":\"pigeon\"", &err), -EINVAL);
    assert_int_equal(env_n_processes(e), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(who_crashes_twice_is_faulted_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(a_killed_process_faults_nobody, setup, teardown),
        cmocka_unit_test_setup_teardown(bad_requests_change_nothing, setup, teardown),
    };
    if (argc != 2) {
        fprintf(stderr, "usage: proc_test DATA-DOUBLE\n");
        return 2;
    }
    env_helper("/bin/false", argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What users may do in states that a fake host does not bring about: handlers over a real store. */
#include "awsgw/ops.h"

#include "awsgw/inst.h"
#include "awsgw/test_gw.h"
#include "awsgw/txn.h"
#include "base/test.h"
#include "base/time.h"
#include "model/keys.h"

#include <errno.h>

#define ACCOUNT STR("123456789012")
#define I1      STR("i-0123456789abcdef0")
#define V1      STR("vol-0123456789abcdef0")

static struct gw gw;
static struct config cfg = {.node = "node1", .region = "r", .vcpu_overcommit_burstable = 4};

static struct aws_call *call_new(struct arena *a)
{
    struct aws_call *call = arena_new_of(a, struct aws_call);
    *call = (struct aws_call){
        .arena = a, .app = &gw, .account = ACCOUNT, .now_ns = UINT64_C(1000000) * NS_PER_S};
    return call;
}

static void put(struct arena *a, struct str key, const struct rec_desc *d, const void *rec)
{
    struct txn *t = arena_new_of(a, struct txn);
    struct err err = ERR_INIT;
    txn_init(t, &gw, a);
    txn_set(t, store_key(&gw, a, key), key, d, rec);
    assert_int_equal(txn_commit(t, &err), 0);
}

static void put_instance(struct arena *a, const char *want, const char *state)
{
    const struct instance i = {.id = I1,
                               .account = ACCOUNT,
                               .generation = 7,
                               .want = str_c(want),
                               .node = STR("node1"),
                               .root_device = STR("/dev/sda1"),
                               .shutdown_behavior = STR("stop"),
                               .n_vcpus = 2,
                               .memory_mib = 512};
    put(a, key_spec(a, "instance", ACCOUNT, I1), &instance_desc, &i);
    if (state) {
        const struct instance_status st = {.id = I1, .generation = 7, .state = str_c(state)};
        put(a, key_status(a, "instance", ACCOUNT, I1), &instance_status_desc, &st);
    }
}

static void put_volume(struct arena *a, const char *state)
{
    const struct volume v = {.id = V1,
                             .account = ACCOUNT,
                             .generation = 1,
                             .want = STR("present"),
                             .instance_id = I1,
                             .device = STR("/dev/sda1"),
                             .attach_want = STR("attached")};
    const struct volume_status st = {.id = V1, .generation = 1, .state = str_c(state)};
    put(a, key_spec(a, "volume", ACCOUNT, V1), &volume_desc, &v);
    put(a, key_status(a, "volume", ACCOUNT, V1), &volume_status_desc, &st);
}

/* compute starts a stopped guest when a newer wish says "running" (compute/vm_fsm.c). */
static void test_a_guest_that_switched_itself_off_stays_off_when_it_is_modified(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(16u << 20);
    struct err err = ERR_INIT;
    put_instance(a, INSTANCE_WANT_RUNNING, "stopped");
    struct ec2_attribute_value v = {.value = STR("terminate")};
    const struct ec2_modify_instance_attribute_request in = {
        .instance_id = I1, .instance_initiated_shutdown_behavior = &v};
    assert_int_equal(ec2_modify_instance_attribute(call_new(a), &in, NULL, &err), 0);
    const struct instance *i = REC(instance, store_spec(&gw, a, "instance", ACCOUNT, I1));
    assert_str(i->shutdown_behavior, "terminate");
    assert_int_equal(i->generation, 8);
    assert_str(i->want, INSTANCE_WANT_STOPPED);
}

static void test_a_running_guest_that_is_modified_runs_on(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(16u << 20);
    struct err err = ERR_INIT;
    put_instance(a, INSTANCE_WANT_RUNNING, "running");
    struct ec2_attribute_value v = {.value = STR("terminate")};
    const struct ec2_modify_instance_attribute_request in = {
        .instance_id = I1, .instance_initiated_shutdown_behavior = &v};
    assert_int_equal(ec2_modify_instance_attribute(call_new(a), &in, NULL, &err), 0);
    assert_str(REC(instance, store_spec(&gw, a, "instance", ACCOUNT, I1))->want,
               INSTANCE_WANT_RUNNING);
}

/* Answered "pending" and then left stopped: a start that was lost. */
static void test_a_start_after_a_stop_that_no_host_has_seen_is_refused(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(16u << 20);
    struct err err = ERR_INIT;
    put_instance(a, INSTANCE_WANT_STOPPED, NULL);
    struct str id = I1;
    const struct ec2_start_instances_request in = {.instance_ids = {&id, 1, true}};
    struct ec2_start_instances_result out = {0};
    assert_int_equal(ec2_start_instances(call_new(a), &in, &out, &err), -EINVAL);
    assert_string_equal(err.name, "IncorrectInstanceState");
}

static void test_a_volume_with_an_attachment_is_not_deleted_whatever_its_state(void **state)
{
    static const char *const states[] = {"creating", "available", "error"};
    for (size_t k = 0; k < ARRAY_LEN(states); k++) {
        AUTO(arena_freep) struct arena *a = arena_new(16u << 20);
        struct err err = ERR_INIT;
        put_instance(a, INSTANCE_WANT_RUNNING, NULL);
        put_volume(a, states[k]);
        const struct ec2_delete_volume_request in = {.volume_id = V1};
        assert_int_equal(ec2_delete_volume(call_new(a), &in, NULL, &err), -EBUSY);
        assert_string_equal(err.name, "VolumeInUse");
    }
}

/* Each test has the store to itself. */
static int end(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(16u << 20);
    struct kv_list l;
    uint64_t rev = 0;
    int r = kv_list(gw.kv, a, STR(""), STR_NONE, KV_LIST_MAX, &l, NULL);
    for (size_t i = 0; r == 0 && i < l.n; i++) {
        const struct kv_op op = {.type = KV_DELETE, .key = l.v[i].key};
        r = kv_txn(gw.kv, NULL, 0, &op, 1, &rev, NULL);
    }
    return r < 0 ? r : view_wait(gw.view, rev, 5 * NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_teardown(fn, end)
        T(test_a_guest_that_switched_itself_off_stays_off_when_it_is_modified),
        T(test_a_running_guest_that_is_modified_runs_on),
        T(test_a_start_after_a_stop_that_no_host_has_seen_is_refused),
        T(test_a_volume_with_an_attachment_is_not_deleted_whatever_its_state),
#undef T
    };
    struct tmpdir dir;
    gw.cfg = &cfg;
    if (!test_gw_open(&gw, &dir, "awsgw-state", NULL)) {
        return 1;
    }
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    test_gw_close(&gw, &dir);
    return r;
}

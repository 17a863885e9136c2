/* The janitor over a real store, with a clock of the test's own. */
#include "awsgw/janitor.h"

#include "awsgw/alloc.h"
#include "awsgw/store.h"
#include "awsgw/test_gw.h"
#include "awsgw/txn.h"
#include "base/test.h"
#include "base/time.h"
#include "model/instance.h"
#include "model/keys.h"
#include "model/network.h"
#include "model/node.h"
#include "model/tag.h"
#include "model/volume.h"

#define ACCOUNT STR("123456789012")
#define I1      STR("i-1")
#define NOW     (UINT64_C(1000000) * NS_PER_S)

static struct gw gw;
static struct config cfg = {.node = "node1", .vcpu_overcommit_burstable = 4};

/* What services and users write: no questions asked. */
static void put(struct arena *a, struct str key, const struct rec_desc *d, const void *rec)
{
    struct txn *t = arena_new_of(a, struct txn);
    struct err err = ERR_INIT;
    txn_init(t, &gw, a);
    txn_set(t, store_key(&gw, a, key), key, d, rec);
    assert_int_equal(txn_commit(t, &err), 0);
}

static void claim(struct arena *a, struct str key)
{
    struct txn *t = arena_new_of(a, struct txn);
    txn_init(t, &gw, a);
    txn_claim(t, key, STR("x"));
    assert_int_equal(txn_commit(t, NULL), 0);
}

static void put_state(struct arena *a, const char *state, uint64_t generation)
{
    const struct instance_status st = {
        .id = I1, .generation = generation, .state = str_c(state)};
    put(a, key_status(a, "instance", ACCOUNT, I1), &instance_status_desc, &st);
}

static void put_tags(struct arena *a, struct str id)
{
    static struct tag tag = {.key = STR("k"), .value = STR("v")};
    const struct tags rec = {.id = id, .account = ACCOUNT, .tags = {&tag, 1}};
    put(a, key_spec(a, "tags", ACCOUNT, id), &tags_desc, &rec);
}

static void put_volume(struct arena *a, struct str id, const char *device, bool is_going)
{
    const struct volume v = {.id = id,
                             .account = ACCOUNT,
                             .generation = 1,
                             .want = STR("present"),
                             .instance_id = I1,
                             .device = str_c(device),
                             .attach_want = STR("attached"),
                             .is_deleted_on_termination = is_going};
    const struct volume_status st = {.id = id, .generation = 1, .state = STR("available")};
    const struct attachment_status at = {
        .volume_id = id, .instance_id = I1, .generation = 1, .state = STR("attached")};
    put(a, key_spec(a, "volume", ACCOUNT, id), &volume_desc, &v);
    put(a, key_status(a, "volume", ACCOUNT, id), &volume_status_desc, &st);
    put(a, key_status(a, "attachment", ACCOUNT, id), &attachment_status_desc, &at);
    put_tags(a, id);
}

/* A running instance with a root that goes with it, a volume that stays, and an address. */
static void put_world(struct arena *a)
{
    const struct instance i = {.id = I1,
                               .account = ACCOUNT,
                               .generation = 1,
                               .want = STR(INSTANCE_WANT_RUNNING),
                               .node = STR("node1"),
                               .n_vcpus = 2,
                               .memory_mib = 512,
                               .is_burstable = true,
                               .is_holding_capacity = true,
                               .has_auto_public_ip = true};
    const struct eni n = {.id = STR("eni-1"),
                          .account = ACCOUNT,
                          .generation = 1,
                          .subnet_id = STR("subnet-1"),
                          .private_ip = STR("10.0.0.4"),
                          .public_ip = STR("198.51.100.4"),
                          .instance_id = I1,
                          .is_deleted_on_termination = true,
                          .want = STR("present")};
    const struct node_capacity cap = {.used_cpu_percent = 150, .used_memory_mib = 1536};
    put(a, key_spec(a, "instance", ACCOUNT, I1), &instance_desc, &i);
    put(a, key_spec(a, "eni", ACCOUNT, n.id), &eni_desc, &n);
    put(a, STR("claim/capacity/node1"), &node_capacity_desc, &cap);
    claim(a, claim_private_ip_key(a, n.subnet_id, n.private_ip));
    claim(a, claim_public_ip_key(a, n.public_ip));
    put_tags(a, I1);
    put_tags(a, n.id);
    put_volume(a, STR("vol-root"), "/dev/sda1", true);
    put_volume(a, STR("vol-data"), "/dev/sdf", false);
    put_state(a, "running", 1);
}

static int begin(void **state)
{
    *state = arena_new(64u << 20);
    put_world(*state);
    return 0;
}

/* Everything goes: each test has the store to itself. */
static int end(void **state)
{
    struct kv_list l;
    uint64_t rev = 0;
    int r = kv_list(gw.kv, *state, STR(""), STR_NONE, KV_LIST_MAX, &l, NULL);
    for (size_t i = 0; r == 0 && i < l.n; i++) {
        const struct kv_op op = {.type = KV_DELETE, .key = l.v[i].key};
        r = kv_txn(gw.kv, NULL, 0, &op, 1, &rev, NULL);
    }
    r = r < 0 ? r : view_wait(gw.view, rev, 5 * NS_PER_S);
    arena_free(*state);
    return r;
}

static void turn_until_idle(uint64_t now_ns)
{
    for (int i = 0; janitor_turn(&gw, now_ns); i++) {
        assert_true(i < 10); /* work that never ends */
    }
}

static const struct instance *the_instance(struct arena *a)
{
    return REC(instance, store_spec(&gw, a, "instance", ACCOUNT, I1));
}

static size_t count(struct arena *a, const char *prefix)
{
    struct kv_list l;
    assert_int_equal(kv_list(gw.kv, a, str_c(prefix), STR_NONE, KV_LIST_MAX, &l, NULL), 0);
    return l.n;
}

static void assert_capacity(struct arena *a, uint64_t percent, uint64_t memory_mib)
{
    const struct node_capacity *cap =
        REC(node_capacity, store_key(&gw, a, STR("claim/capacity/node1")));
    assert_int_equal(cap->used_cpu_percent, percent);
    assert_int_equal(cap->used_memory_mib, memory_mib);
}

static void test_what_runs_is_left_alone(void **state)
{
    assert_false(janitor_turn(&gw, NOW));
    assert_capacity(*state, 150, 1536);
}

static void test_terminated_gives_everything_back_once(void **state)
{
    struct arena *a = *state;
    put_state(a, "terminated", 1);
    turn_until_idle(NOW);
    assert_capacity(a, 100, 1024);
    assert_int_equal(count(a, "claim/ip/"), 0);
    assert_int_equal(count(a, "claim/publicip/"), 0);
    assert_int_equal(count(a, "spec/eni/"), 0);
    assert_int_equal(count(a, "status/attachment/"), 0);
    assert_false(store_has(&gw, key_spec(a, "tags", ACCOUNT, STR("eni-1"))));
    assert_true(store_has(&gw, key_spec(a, "tags", ACCOUNT, I1)));
    assert_true(the_instance(a)->is_released);
    assert_int_equal(the_instance(a)->terminated_ns, NOW);
    const struct volume *root =
        REC(volume, store_spec(&gw, a, "volume", ACCOUNT, STR("vol-root")));
    const struct volume *data =
        REC(volume, store_spec(&gw, a, "volume", ACCOUNT, STR("vol-data")));
    assert_str(root->want, "deleted");
    assert_str(data->want, "present");
    assert_str(data->instance_id, "");
    assert_int_equal(data->generation, 2);
    turn_until_idle(NOW + NS_PER_S); /* nothing is given back twice */
    assert_capacity(a, 100, 1024);
}

static void test_a_kept_interface_keeps_its_private_address_only(void **state)
{
    struct arena *a = *state;
    struct eni n = *REC(eni, store_spec(&gw, a, "eni", ACCOUNT, STR("eni-1")));
    n.is_deleted_on_termination = false;
    put(a, key_spec(a, "eni", ACCOUNT, n.id), &eni_desc, &n);
    put_state(a, "terminated", 1);
    turn_until_idle(NOW);
    const struct eni *left = REC(eni, store_spec(&gw, a, "eni", ACCOUNT, STR("eni-1")));
    assert_str(left->instance_id, "");
    assert_str(left->public_ip, "");
    assert_int_equal(count(a, "claim/ip/"), 1);
    assert_int_equal(count(a, "claim/publicip/"), 0);
}

static void test_terminated_is_forgotten_after_an_hour_and_not_before(void **state)
{
    struct arena *a = *state;
    put_state(a, "terminated", 1);
    turn_until_idle(NOW);
    turn_until_idle(NOW - UINT64_C(7200) * NS_PER_S); /* a clock that was set back */
    turn_until_idle(NOW + TERMINATED_VISIBLE_NS);
    assert_non_null(the_instance(a));
    turn_until_idle(NOW + TERMINATED_VISIBLE_NS + 1);
    assert_null(the_instance(a));
    assert_int_equal(count(a, "status/instance/"), 0);
    assert_false(store_has(&gw, key_spec(a, "tags", ACCOUNT, I1)));
    assert_true(store_has(&gw, key_spec(a, "tags", ACCOUNT, STR("vol-data"))));
}

static void test_a_status_that_comes_after_its_instance_was_forgotten_goes(void **state)
{
    struct arena *a = *state;
    put_state(a, "terminated", 1);
    turn_until_idle(NOW);
    turn_until_idle(NOW + TERMINATED_VISIBLE_NS + 1);
    put_state(a, "terminated", 1); /* a host that was away tells its old story */
    turn_until_idle(NOW + TERMINATED_VISIBLE_NS + 2);
    assert_int_equal(count(a, "status/instance/"), 0);
    assert_null(the_instance(a));
}

static void test_stopped_gives_back_capacity_and_the_public_address_only(void **state)
{
    struct arena *a = *state;
    struct instance i = *the_instance(a);
    i.want = STR(INSTANCE_WANT_STOPPED);
    i.generation = 2;
    put(a, key_spec(a, "instance", ACCOUNT, I1), &instance_desc, &i);
    put_state(a, "stopped", 1); /* of before: a newer wish is on its way */
    turn_until_idle(NOW);
    assert_capacity(a, 150, 1536);
    put_state(a, "stopping", 2);
    turn_until_idle(NOW);
    assert_capacity(a, 150, 1536);
    put_state(a, "stopped", 2);
    turn_until_idle(NOW);
    assert_capacity(a, 100, 1024);
    assert_int_equal(count(a, "claim/publicip/"), 0);
    assert_int_equal(count(a, "claim/ip/"), 1);
    assert_int_equal(count(a, "spec/volume/"), 2);
    assert_false(the_instance(a)->is_holding_capacity);
    put_state(a, "terminated", 2); /* what was given back is not given back again */
    turn_until_idle(NOW);
    assert_capacity(a, 100, 1024);
}

static void test_a_detached_volume_is_free_and_a_deleted_one_forgotten(void **state)
{
    struct arena *a = *state;
    struct str id = STR("vol-data");
    struct volume v = *REC(volume, store_spec(&gw, a, "volume", ACCOUNT, id));
    struct attachment_status at = {
        .volume_id = id, .instance_id = I1, .generation = 1, .state = STR("detached")};
    v.attach_want = STR("detached");
    v.generation = 2;
    put(a, key_spec(a, "volume", ACCOUNT, id), &volume_desc, &v);
    put(a, key_status(a, "attachment", ACCOUNT, id), &attachment_status_desc, &at);
    turn_until_idle(NOW); /* an answer to an older wish */
    assert_str(REC(volume, store_spec(&gw, a, "volume", ACCOUNT, id))->instance_id, "i-1");
    at.generation = 2;
    put(a, key_status(a, "attachment", ACCOUNT, id), &attachment_status_desc, &at);
    turn_until_idle(NOW);
    v = *REC(volume, store_spec(&gw, a, "volume", ACCOUNT, id));
    assert_str(v.instance_id, "");
    v.want = STR("deleted");
    put(a, key_spec(a, "volume", ACCOUNT, id), &volume_desc, &v);
    turn_until_idle(NOW); /* its bytes are still there */
    assert_true(store_has(&gw, key_spec(a, "volume", ACCOUNT, id)));
    const struct volume_status gone = {.id = id, .generation = 2, .state = STR("deleted")};
    put(a, key_status(a, "volume", ACCOUNT, id), &volume_status_desc, &gone);
    turn_until_idle(NOW);
    assert_false(store_has(&gw, key_spec(a, "volume", ACCOUNT, id)));
    assert_false(store_has(&gw, key_status(a, "volume", ACCOUNT, id)));
    assert_false(store_has(&gw, key_spec(a, "tags", ACCOUNT, id)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, begin, end)
        T(test_what_runs_is_left_alone),
        T(test_terminated_gives_everything_back_once),
        T(test_a_kept_interface_keeps_its_private_address_only),
        T(test_terminated_is_forgotten_after_an_hour_and_not_before),
        T(test_a_status_that_comes_after_its_instance_was_forgotten_goes),
        T(test_stopped_gives_back_capacity_and_the_public_address_only),
        T(test_a_detached_volume_is_free_and_a_deleted_one_forgotten),
#undef T
    };
    struct tmpdir dir;
    gw.cfg = &cfg;
    if (!test_gw_open(&gw, &dir, "janitor", NULL)) {
        return 1;
    }
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    test_gw_close(&gw, &dir);
    return r;
}

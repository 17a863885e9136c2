/* The janitor's steps for images and snapshots, over a real store. */
#include "awsgw/janitor.h"

#include "awsgw/image.h"
#include "awsgw/test_gw.h"
#include "base/test.h"
#include "model/keys.h"
#include "model/node.h"

#define ACCOUNT STR("123456789012")
#define I1      STR("i-1")
#define AMI     STR("ami-1")
#define NOW     (UINT64_C(1000000) * NS_PER_S)

static struct gw gw;
static struct config cfg = {.node = "node1", .vcpu_overcommit_burstable = 4};

static void put(struct arena *a, struct str key, const struct rec_desc *d, const void *rec)
{
    struct txn *t = arena_new_of(a, struct txn);
    struct err err = ERR_INIT;
    txn_init(t, &gw, a);
    txn_set(t, store_key(&gw, a, key), key, d, rec);
    assert_int_equal(txn_commit(t, &err), 0);
}

static void put_tags(struct arena *a, struct str id)
{
    static struct tag tag = {.key = STR("k"), .value = STR("v")};
    const struct tags rec = {.id = id, .account = ACCOUNT, .tags = {&tag, 1}};
    put(a, key_spec(a, "tags", ACCOUNT, id), &tags_desc, &rec);
}

static void put_volume(struct arena *a, struct str id, const char *device)
{
    const struct volume v = {.id = id,
                             .account = ACCOUNT,
                             .generation = 1,
                             .want = STR("present"),
                             .size_gib = 3,
                             .type = STR("gp3"),
                             .instance_id = I1,
                             .device = str_c(device),
                             .attach_want = STR("attached")};
    put(a, key_spec(a, "volume", ACCOUNT, id), &volume_desc, &v);
}

static void put_instance(struct arena *a, const char *want, const char *imaging,
                         uint64_t generation)
{
    const struct instance i = {.id = I1,
                               .account = ACCOUNT,
                               .generation = generation,
                               .want = str_c(want),
                               .node = STR("node1"),
                               .imaging = str_c(imaging),
                               .n_vcpus = 2,
                               .memory_mib = 512,
                               .is_holding_capacity = true};
    put(a, key_spec(a, "instance", ACCOUNT, I1), &instance_desc, &i);
}

static void put_state(struct arena *a, const char *state, uint64_t generation)
{
    const struct instance_status st = {
        .id = I1, .generation = generation, .state = str_c(state)};
    put(a, key_status(a, "instance", ACCOUNT, I1), &instance_status_desc, &st);
}

static void put_snapshot_status(struct arena *a, struct str id, const char *state,
                                uint64_t start_ns)
{
    const struct snapshot_status st = {
        .id = id, .generation = 1, .state = str_c(state), .start_ns = start_ns};
    put(a, key_status(a, "snapshot", ACCOUNT, id), &snapshot_status_desc, &st);
}

/* An image with a reboot of an instance with two disks, as CreateImage leaves it. */
static void put_image(struct arena *a, const char *phase)
{
    struct image_device d[] = {
        {.device = STR("/dev/sda1"), .snapshot_id = STR("snap-1"), .volume_id = STR("vol-1")},
        {.device = STR("/dev/sdf"), .snapshot_id = STR("snap-2"), .volume_id = STR("vol-2")},
        {.device = STR("/dev/sdb"), .virtual_name = STR("ephemeral0")},
    };
    const struct image i = {.id = AMI,
                            .account = ACCOUNT,
                            .name = STR("n"),
                            .want = STR("present"),
                            .root_device = STR("/dev/sda1"),
                            .snapshot_id = STR("snap-1"),
                            .source = STR("instance"),
                            .source_id = I1,
                            .phase = str_c(phase),
                            .devices = {d, ARRAY_LEN(d)}};
    put(a, key_spec(a, "image", ACCOUNT, AMI), &image_desc, &i);
}

static int begin(void **state)
{
    struct arena *a = arena_new(64u << 20);
    *state = a;
    put_volume(a, STR("vol-1"), "/dev/sda1");
    put_volume(a, STR("vol-2"), "/dev/sdf");
    put_instance(a, INSTANCE_WANT_STOPPED, "ami-1", 2);
    put_state(a, "running", 1);
    put_tags(a, STR("snap-1"));
    put_tags(a, STR("snap-2"));
    return 0;
}

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

static void turn_until_idle(void)
{
    for (int i = 0; janitor_turn(&gw, NOW); i++) {
        assert_true(i < 10); /* work that never ends */
    }
}

static const struct image *image(struct arena *a)
{
    return REC(image, store_spec(&gw, a, "image", ACCOUNT, AMI));
}

static const struct instance *instance(struct arena *a)
{
    return REC(instance, store_spec(&gw, a, "instance", ACCOUNT, I1));
}

static const struct snapshot *snapshot(struct arena *a, const char *id)
{
    return REC(snapshot, store_spec(&gw, a, "snapshot", ACCOUNT, str_c(id)));
}

static void test_an_image_is_taken_between_stop_and_start(void **state)
{
    struct arena *a = *state;
    put_image(a, "stopping");
    turn_until_idle();
    assert_null(snapshot(a, "snap-1")); /* the guest still runs */
    put_state(a, "stopped", 1);         /* of an older wish */
    turn_until_idle();
    assert_null(snapshot(a, "snap-1"));
    put_state(a, "stopped", 2);
    turn_until_idle();
    assert_str(image(a)->phase, "taking");
    assert_str(snapshot(a, "snap-1")->volume_id, "vol-1");
    assert_str(snapshot(a, "snap-1")->group, "snap-1");
    assert_str(snapshot(a, "snap-2")->group, "snap-1");
    assert_int_equal(snapshot(a, "snap-2")->n_group, 2);
    assert_str(snapshot(a, "snap-2")->description, "Created by CreateImage(i-1) for ami-1");
    assert_str(instance(a)->want, INSTANCE_WANT_STOPPED);
    assert_true(instance(a)->is_holding_capacity); /* it will go on */
    put_snapshot_status(a, STR("snap-1"), "pending", NOW);
    put_snapshot_status(a, STR("snap-2"), "pending", 0);
    turn_until_idle();
    assert_str(instance(a)->want, INSTANCE_WANT_STOPPED); /* one disk is not taken yet */
    put_snapshot_status(a, STR("snap-2"), "pending", NOW);
    turn_until_idle();
    assert_str(image(a)->phase, "");
    assert_str(instance(a)->want, INSTANCE_WANT_RUNNING);
    assert_int_equal(instance(a)->generation, 3);
    assert_str(instance(a)->imaging, "ami-1"); /* users see it run until it does */
    put_state(a, "pending", 3);
    turn_until_idle();
    assert_str(instance(a)->imaging, "ami-1");
    put_state(a, "running", 3);
    turn_until_idle();
    assert_str(instance(a)->imaging, "");
    assert_str(image_state(&gw, a, image(a), NULL), "pending");
    put_snapshot_status(a, STR("snap-1"), "completed", NOW);
    assert_str(image_state(&gw, a, image(a), NULL), "pending");
    put_snapshot_status(a, STR("snap-2"), "completed", NOW);
    assert_str(image_state(&gw, a, image(a), NULL), "available");
    put_snapshot_status(a, STR("snap-2"), "error", NOW);
    struct str why = STR("");
    assert_str(image_state(&gw, a, image(a), &why), "failed");
    assert_str(why, "Snapshot (snap-2) failed");
}

static void test_a_snapshot_that_cannot_be_taken_holds_no_instance(void **state)
{
    struct arena *a = *state;
    put_image(a, "stopping");
    put_state(a, "stopped", 2);
    turn_until_idle();
    put_snapshot_status(a, STR("snap-1"), "error", 0);
    put_snapshot_status(a, STR("snap-2"), "error", 0);
    turn_until_idle();
    assert_str(instance(a)->want, INSTANCE_WANT_RUNNING);
    assert_str(image_state(&gw, a, image(a), NULL), "failed");
}

static void test_a_guest_that_does_not_come_back_is_seen_stopped(void **state)
{
    struct arena *a = *state;
    const struct node_capacity cap = {.used_cpu_percent = 400, .used_memory_mib = 1024};
    put(a, STR("claim/capacity/node1"), &node_capacity_desc, &cap);
    put_image(a, "");
    put_instance(a, INSTANCE_WANT_RUNNING, "ami-1", 3);
    put_state(a, "stopped", 3);
    turn_until_idle();
    assert_str(instance(a)->imaging, "");
    assert_false(instance(a)->is_holding_capacity);
}

static void test_a_terminated_instance_fails_its_image(void **state)
{
    struct arena *a = *state;
    put_image(a, "stopping");
    put_instance(a, INSTANCE_WANT_TERMINATED, "ami-1", 3);
    turn_until_idle();
    assert_str(image_state(&gw, a, image(a), NULL), "failed");
    assert_false(store_has(&gw, key_spec(a, "tags", ACCOUNT, STR("snap-1"))));
    assert_str(instance(a)->want, INSTANCE_WANT_TERMINATED);
    put_state(a, "terminated", 3);
    turn_until_idle();
    assert_true(instance(a)->is_released);
    assert_str(instance(a)->imaging, ""); /* held by nothing any more */
}

static void test_a_volume_that_is_gone_fails_the_image_and_frees_the_instance(void **state)
{
    struct arena *a = *state;
    put_image(a, "stopping");
    struct volume v = *REC(volume, store_spec(&gw, a, "volume", ACCOUNT, STR("vol-2")));
    v.want = STR("deleted");
    put(a, key_spec(a, "volume", ACCOUNT, v.id), &volume_desc, &v);
    put_state(a, "stopped", 2);
    turn_until_idle();
    assert_str(image_state(&gw, a, image(a), NULL), "failed");
    assert_null(snapshot(a, "snap-1"));
    assert_str(instance(a)->want, INSTANCE_WANT_RUNNING);
}

static void test_a_user_who_stops_it_keeps_it_stopped(void **state)
{
    struct arena *a = *state;
    const struct node_capacity cap = {.used_cpu_percent = 400, .used_memory_mib = 1024};
    put(a, STR("claim/capacity/node1"), &node_capacity_desc, &cap);
    put_image(a, "stopping");
    put_instance(a, INSTANCE_WANT_STOPPED, "", 3);
    put_state(a, "stopped", 3);
    turn_until_idle();
    assert_str(image(a)->phase, "taking");
    put_snapshot_status(a, STR("snap-1"), "pending", NOW);
    put_snapshot_status(a, STR("snap-2"), "pending", NOW);
    turn_until_idle();
    assert_str(image(a)->phase, "");
    assert_str(instance(a)->want, INSTANCE_WANT_STOPPED);
    assert_false(instance(a)->is_holding_capacity);
}

static void test_a_user_who_starts_it_again_fails_the_image(void **state)
{
    struct arena *a = *state;
    put_image(a, "stopping");
    put_instance(a, INSTANCE_WANT_RUNNING, "", 4);
    turn_until_idle();
    assert_str(image_state(&gw, a, image(a), NULL), "failed");
}

static void test_an_image_that_was_deregistered_frees_the_instance(void **state)
{
    struct arena *a = *state;
    put_image(a, "stopping");
    struct image i = *image(a);
    i.want = STR("deleted");
    put(a, key_spec(a, "image", ACCOUNT, AMI), &image_desc, &i);
    put_tags(a, AMI);
    put_state(a, "stopped", 2);
    turn_until_idle();
    assert_non_null(image(a)); /* the block service has not let go of its base */
    assert_str(instance(a)->want, INSTANCE_WANT_RUNNING);
    const struct image_status gone = {.id = AMI, .state = STR("deregistered")};
    put(a, key_status(a, "image", ACCOUNT, AMI), &image_status_desc, &gone);
    turn_until_idle();
    assert_null(image(a));
    assert_false(store_has(&gw, key_spec(a, "tags", ACCOUNT, AMI)));
    assert_str(instance(a)->want, INSTANCE_WANT_RUNNING);
}

static void test_tags_of_an_image_that_somebody_else_forgot_go(void **state)
{
    struct arena *a = *state;
    put_tags(a, STR("ami-2"));
    put_image(a, "");
    put_tags(a, AMI);
    turn_until_idle();
    assert_false(store_has(&gw, key_spec(a, "tags", ACCOUNT, STR("ami-2"))));
    assert_true(store_has(&gw, key_spec(a, "tags", ACCOUNT, AMI)));
}

static void test_a_deleted_snapshot_is_forgotten_when_its_bytes_are_gone(void **state)
{
    struct arena *a = *state;
    struct snapshot s = {.id = STR("snap-1"), .account = ACCOUNT, .want = STR("deleted")};
    put(a, key_spec(a, "snapshot", ACCOUNT, s.id), &snapshot_desc, &s);
    put_snapshot_status(a, s.id, "completed", NOW);
    turn_until_idle();
    assert_non_null(snapshot(a, "snap-1"));
    put_snapshot_status(a, s.id, "deleted", NOW);
    turn_until_idle();
    assert_null(snapshot(a, "snap-1"));
    assert_false(store_has(&gw, key_status(a, "snapshot", ACCOUNT, s.id)));
    assert_false(store_has(&gw, key_spec(a, "tags", ACCOUNT, s.id)));
    put_snapshot_status(a, s.id, "deleted", NOW); /* a late word of it */
    turn_until_idle();
    assert_false(store_has(&gw, key_status(a, "snapshot", ACCOUNT, s.id)));
}

static void test_the_snapshot_of_a_copy_goes_when_the_copy_is_made(void **state)
{
    struct arena *a = *state;
    struct snapshot s = {
        .id = STR("snap-9"), .account = ACCOUNT, .want = STR("present"), .is_hidden = true};
    struct volume v = {.id = STR("vol-9"),
                       .account = ACCOUNT,
                       .want = STR("present"),
                       .snapshot_id = s.id,
                       .source_volume_id = STR("vol-1")};
    struct volume_status st = {.id = v.id, .state = STR("creating")};
    put(a, key_spec(a, "snapshot", ACCOUNT, s.id), &snapshot_desc, &s);
    put(a, key_spec(a, "volume", ACCOUNT, v.id), &volume_desc, &v);
    turn_until_idle();
    assert_str(snapshot(a, "snap-9")->want, "present");
    put(a, key_status(a, "volume", ACCOUNT, v.id), &volume_status_desc, &st);
    turn_until_idle();
    assert_str(snapshot(a, "snap-9")->want, "present");
    st.state = STR("available");
    st.absent = 4096; /* kept for it by the block service */
    put(a, key_status(a, "volume", ACCOUNT, v.id), &volume_status_desc, &st);
    turn_until_idle();
    assert_str(snapshot(a, "snap-9")->want, "deleted");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, begin, end)
        T(test_an_image_is_taken_between_stop_and_start),
        T(test_a_snapshot_that_cannot_be_taken_holds_no_instance),
        T(test_a_guest_that_does_not_come_back_is_seen_stopped),
        T(test_a_terminated_instance_fails_its_image),
        T(test_a_volume_that_is_gone_fails_the_image_and_frees_the_instance),
        T(test_a_user_who_stops_it_keeps_it_stopped),
        T(test_a_user_who_starts_it_again_fails_the_image),
        T(test_an_image_that_was_deregistered_frees_the_instance),
        T(test_tags_of_an_image_that_somebody_else_forgot_go),
        T(test_a_deleted_snapshot_is_forgotten_when_its_bytes_are_gone),
        T(test_the_snapshot_of_a_copy_goes_when_the_copy_is_made),
#undef T
    };
    struct tmpdir dir;
    gw.cfg = &cfg;
    if (!test_gw_open(&gw, &dir, "janitor-image", NULL)) {
        return 1;
    }
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    test_gw_close(&gw, &dir);
    return r;
}

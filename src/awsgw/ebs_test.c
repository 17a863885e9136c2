/* What time does to snapshots and modifications: handlers over a real store, with a clock of the
 * test's own. */
#include "awsgw/ops.h"

#include "awsgw/ebs.h"
#include "awsgw/image.h"
#include "awsgw/test_gw.h"
#include "awsgw/vol.h"
#include "base/test.h"
#include "model/keys.h"

#define ACCOUNT STR("123456789012")
#define OTHER   STR("210987654321")
#define V1      STR("vol-0123456789abcdef0")
#define S1      STR("snap-0123456789abcdef0")
#define NOW     (UINT64_C(2000000000) * NS_PER_S)
#define HOUR_NS (UINT64_C(3600) * NS_PER_S)

static struct gw gw;
static struct config cfg = {.node = "node1", .region = "r", .az = "ra"};
static struct arena *arena;

static struct aws_call *call_at(uint64_t now_ns, struct str account)
{
    struct aws_call *call = arena_new_of(arena, struct aws_call);
    *call = (struct aws_call){
        .arena = arena, .app = &gw, .account = account, .region = STR("r"), .now_ns = now_ns};
    return call;
}

static void put(struct str key, const struct rec_desc *d, const void *rec)
{
    struct txn *t = arena_new_of(arena, struct txn);
    struct err err = ERR_INIT;
    txn_init(t, &gw, arena);
    txn_set(t, store_key(&gw, arena, key), key, d, rec);
    assert_int_equal(txn_commit(t, &err), 0);
}

static void put_volume(const char *type)
{
    const struct volume v = {.id = V1,
                             .account = ACCOUNT,
                             .generation = 1,
                             .want = STR("present"),
                             .size_gib = 200,
                             .iops = 3000,
                             .throughput = 125,
                             .type = str_c(type)};
    const struct volume_status st = {.id = V1, .generation = 1, .state = STR("available")};
    put(key_spec(arena, "volume", ACCOUNT, V1), &volume_desc, &v);
    put(key_status(arena, "volume", ACCOUNT, V1), &volume_status_desc, &st);
}

static void put_snapshot(struct str id, uint64_t create_ns, const char *state)
{
    struct snapshot s = {.id = id,
                         .account = ACCOUNT,
                         .generation = 1,
                         .want = STR("present"),
                         .source = STR("volume"),
                         .volume_id = V1,
                         .size_gib = 200,
                         .create_ns = create_ns};
    const struct snapshot_status st = {
        .id = id, .generation = 1, .state = str_c(state), .start_ns = create_ns};
    put(key_spec(arena, "snapshot", ACCOUNT, id), &snapshot_desc, &s);
    if (state[0]) {
        put(key_status(arena, "snapshot", ACCOUNT, id), &snapshot_status_desc, &st);
    }
}

static int begin(void **state)
{
    arena = arena_new(64u << 20);
    return 0;
}

static int end(void **state)
{
    struct kv_list l;
    uint64_t rev = 0;
    int r = kv_list(gw.kv, arena, STR(""), STR_NONE, KV_LIST_MAX, &l, NULL);
    for (size_t i = 0; r == 0 && i < l.n; i++) {
        const struct kv_op op = {.type = KV_DELETE, .key = l.v[i].key};
        r = kv_txn(gw.kv, NULL, 0, &op, 1, &rev, NULL);
    }
    r = r < 0 ? r : view_wait(gw.view, rev, 5 * NS_PER_S);
    arena_free(arena);
    return r;
}

/* "" = it was done. */
static const char *modify(uint64_t now_ns, int64_t size)
{
    static struct err err;
    err = (struct err)ERR_INIT;
    const struct ec2_modify_volume_request in = {.volume_id = V1, .size = some_i64(size)};
    struct ec2_modify_volume_result out = {0};
    return ec2_modify_volume(call_at(now_ns, ACCOUNT), &in, &out, &err) < 0 ? err.name : "";
}

static void end_modification(const char *how)
{
    const struct volume_mod *m = REC(volume_mod, store_spec(&gw, arena, "volmod", ACCOUNT, V1));
    const struct volume_mod_status st = {
        .id = V1, .generation = m->generation, .state = str_c(how)};
    put(key_status(arena, "volmod", ACCOUNT, V1), &volume_mod_status_desc, &st);
}

static void test_four_modifications_in_any_day(void **state)
{
    put_volume("gp3");
    for (unsigned i = 0; i < 4; i++) {
        assert_string_equal(modify(NOW + i * HOUR_NS, 201 + i), "");
        assert_string_equal(modify(NOW + i * HOUR_NS, 300), "IncorrectModificationState");
        end_modification(i == 2 ? "optimizing" : "completed");
        if (i == 2) {
            assert_string_equal(modify(NOW + i * HOUR_NS, 300), "IncorrectModificationState");
            end_modification("completed");
        }
    }
    assert_string_equal(modify(NOW + 4 * HOUR_NS, 300), "VolumeModificationRateExceeded");
    assert_string_equal(modify(NOW + 24 * HOUR_NS - 1, 300), "VolumeModificationRateExceeded");
    /* A day after the first there is room for one, after the second for the next. */
    assert_string_equal(modify(NOW + 24 * HOUR_NS, 300), "");
    end_modification("completed");
    assert_string_equal(modify(NOW + 24 * HOUR_NS + 1, 301), "VolumeModificationRateExceeded");
    assert_string_equal(modify(NOW + 25 * HOUR_NS, 301), "");
    /* A clock that was set back takes nothing away for ever. */
    end_modification("completed");
    assert_string_equal(modify(NOW + 60 * HOUR_NS, 302), "");
}

static void test_a_volume_shows_what_holds(void **state)
{
    put_volume("gp3");
    struct aws_call *call = call_at(NOW, ACCOUNT);
    assert_string_equal(modify(NOW, 300), "");
    static const struct {
        const char *how;
        uint64_t size;
    } cases[] = {{"modifying", 200}, {"optimizing", 300}, {"completed", 300}, {"failed", 200}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        end_modification(cases[i].how);
        struct vol v = vol_join(call, store_spec(&gw, arena, "volume", ACCOUNT, V1));
        assert_int_equal(v.now.size_gib, cases[i].size);
        assert_int_equal(v.spec->size_gib, 300);
    }
    /* A status of an older modification says nothing about this one. */
    const struct volume_mod_status old = {.id = V1, .generation = 1, .state = STR("completed")};
    put(key_status(arena, "volmod", ACCOUNT, V1), &volume_mod_status_desc, &old);
    struct vol v = vol_join(call, store_spec(&gw, arena, "volume", ACCOUNT, V1));
    assert_int_equal(v.now.size_gib, 200);
}

/* Asked dry: whether it would be done. */
static const char *snapshot(uint64_t now_ns)
{
    static struct err err;
    err = (struct err)ERR_INIT;
    const struct ec2_create_snapshot_request in = {.volume_id = V1};
    struct ec2_snapshot out = {0};
    struct aws_call *call = call_at(now_ns, ACCOUNT);
    call->is_dry_run = true;
    assert_true(ec2_create_snapshot(call, &in, &out, &err) < 0);
    return err.name;
}

static void test_snapshots_of_a_volume_have_a_rest_between_them(void **state)
{
    put_volume("gp3");
    assert_string_equal(snapshot(NOW), "DryRunOperation");
    put_snapshot(S1, NOW, "completed");
    assert_string_equal(snapshot(NOW + 15 * NS_PER_S - 1),
                        "SnapshotCreationPerVolumeRateExceeded");
    assert_string_equal(snapshot(NOW + 15 * NS_PER_S), "DryRunOperation");
}

static void test_so_many_snapshots_of_a_volume_may_be_pending(void **state)
{
    static const struct {
        const char *type;
        unsigned max;
    } cases[] = {{"gp3", 5}, {"io2", 5}, {"standard", 5}, {"st1", 1}, {"sc1", 1}};
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        put_volume(cases[k].type);
        for (unsigned i = 0; i < cases[k].max; i++) {
            assert_string_equal(snapshot(NOW + 60 * NS_PER_S), "DryRunOperation");
            put_snapshot(arena_fmt(arena, "snap-%016u%zu", i, k), NOW, i % 2 ? "pending" : "");
        }
        assert_string_equal(snapshot(NOW + 60 * NS_PER_S), "ConcurrentSnapshotLimitExceeded");
        put_snapshot(arena_fmt(arena, "snap-%016u%zu", 0u, k), NOW, "completed");
        assert_string_equal(snapshot(NOW + 60 * NS_PER_S), "DryRunOperation");
        for (unsigned i = 0; i < cases[k].max; i++) {
            put_snapshot(arena_fmt(arena, "snap-%016u%zu", i, k), NOW, "completed");
        }
    }
}

static void test_who_may_use_a_snapshot(void **state)
{
    struct str with = OTHER;
    struct snapshot s = {.id = S1, .account = ACCOUNT, .want = STR("present")};
    struct ebs_defaults d = {.account = ACCOUNT};
    struct aws_call *own = call_at(NOW, ACCOUNT), *other = call_at(NOW, OTHER);
    assert_true(snap_is_visible(own, &s) && !snap_is_visible(other, &s));
    s.accounts = (struct str_list){&with, 1};
    assert_true(snap_is_visible(other, &s));
    s.accounts.n = 0;
    s.is_public = true;
    assert_true(snap_is_visible(other, &s));
    d.block_public_access = STR("block-new-sharing");
    put(key_spec(arena, "ebsdefaults", ACCOUNT, STR("default")), &ebs_defaults_desc, &d);
    assert_true(snap_is_visible(other, &s));
    d.block_public_access = STR("block-all-sharing");
    put(key_spec(arena, "ebsdefaults", ACCOUNT, STR("default")), &ebs_defaults_desc, &d);
    assert_true(snap_is_visible(own, &s) && !snap_is_visible(other, &s));
    s.accounts.n = 1; /* named ones keep it */
    assert_true(snap_is_visible(other, &s));
    s.is_hidden = true;
    assert_true(!snap_is_visible(own, &s));
    s.is_hidden = false;
    s.want = STR("deleted");
    assert_true(!snap_is_visible(own, &s) && !snap_is_visible(other, &s));
}

/* Records of before there were statuses (version 1). */
static void test_an_old_snapshot_is_what_it_says(void **state)
{
    struct snapshot s = {.id = S1, .account = ACCOUNT, .state = STR("completed")};
    struct str key = key_spec(arena, "snapshot", ACCOUNT, S1);
    put(key, &snapshot_desc, &s);
    assert_str(snap_join_in(&gw, arena, store_key(&gw, arena, key)).state, "completed");
    s.state = STR("");
    put(key, &snapshot_desc, &s);
    assert_str(snap_join_in(&gw, arena, store_key(&gw, arena, key)).state, "pending");
}

static void test_keys(void **state)
{
    struct str a = ebs_key_arn(&gw, arena, ACCOUNT), b = ebs_key_arn(&gw, arena, OTHER);
    assert_true(str_has_prefixc(a, "arn:aws:kms:r:123456789012:key/"));
    assert_true(str_eq(a, ebs_key_arn(&gw, arena, ACCOUNT)));
    assert_false(str_eq(str_skip(a, 31), str_skip(b, 31)));
    struct aws_call *call = call_at(NOW, ACCOUNT);
    assert_int_equal(ebs_key_check(call, a, NULL), 0);
    assert_int_equal(ebs_key_check(call, str_skip(a, 31), NULL), 0);
    assert_true(ebs_key_check(call, b, NULL) < 0);
    assert_true(ebs_key_check(call, STR(""), NULL) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, begin, end)
        T(test_four_modifications_in_any_day),
        T(test_a_volume_shows_what_holds),
        T(test_snapshots_of_a_volume_have_a_rest_between_them),
        T(test_so_many_snapshots_of_a_volume_may_be_pending),
        T(test_who_may_use_a_snapshot),
        T(test_an_old_snapshot_is_what_it_says),
        T(test_keys),
#undef T
    };
    struct tmpdir dir;
    gw.cfg = &cfg;
    if (!test_gw_open(&gw, &dir, "awsgw-ebs", NULL)) {
        return 1;
    }
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    test_gw_close(&gw, &dir);
    return r;
}

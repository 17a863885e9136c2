/* Snapshots in the real object store: random orders of everything against the oracle, damage,
 * a store that is away, slow or full, locked keys, what may be seen of encrypted blocks. */
#include "snap/tests/snap_world.h"

#include "base/rand.h"
#include "base/time.h"
#include "base/vec.h"
#include "crypto/crc.h"
#include "crypto/digest.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

static char **args;
static struct world w;

static int setup(void **ctx)
{
    (void)ctx;
    world_init(&w, args);
    return 0;
}

static int teardown(void **ctx)
{
    (void)ctx;
    world_done(&w);
    return 0;
}

static uint64_t rng = 88172645463325252u;
static uint32_t rnd(uint32_t n)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)(rng >> 11) % n;
}

#define OK(call)                                       \
    do {                                               \
        struct err ok_ = ERR_INIT;                     \
        int ok_r_ = (call);                            \
        if (ok_r_ < 0) {                               \
            fail_msg(#call ": %d %s", ok_r_, ok_.msg); \
        }                                              \
    } while (0)

static void put(struct oracle_snap *x, uint32_t block, uint32_t what)
{
    if (what) {
        world_fill(what, w.buf);
    }
    OK(snap_put(w.snap, str_c(x->id), block, what ? w.buf : NULL, NULL, &ok_));
    oracle_put(x, block, what);
}

static struct oracle_snap *begin(struct oracle *o, const struct oracle_snap *parent, bool enc,
                                 uint32_t n)
{
    struct oracle_snap *x = oracle_new(o, parent, enc, n);
    assert_non_null(x);
    OK(snap_begin(w.snap, &x->info, &ok_));
    return x;
}

static void commit(struct oracle_snap *x)
{
    struct snap_info got;
    uint64_t n = 0, n_new = 0;
    OK(snap_commit(w.snap, str_c(x->id), &got, &ok_));
    for (uint32_t i = 0; i < x->n_blocks; i++) {
        n += x->blocks[i] != 0;
        n_new += x->blocks[i] != 0 && x->blocks[i] != x->base[i];
    }
    assert_int_equal(got.n_blocks, n);
    assert_int_equal(got.n_zero, x->n_blocks - n);
    assert_int_equal(got.n_new, n_new);
    x->state = O_VISIBLE;
}

static void collect(const struct oracle *o)
{
    struct snap_usage u;
    OK(snap_collect(w.snap, str_c(o->account), &u, &ok_));
    assert_int_equal(u.n_missing, 0);
    assert_int_equal(u.n_damaged, 0);
    oracle_check_keys(&w, o);
    OK(snap_check(w.snap, str_c(o->account), true, &u, &ok_));
    assert_int_equal(u.n_freed_blocks + u.n_freed_pages + u.freed_bytes, 0);
    assert_int_equal(u.n_missing + u.n_damaged, 0);
}

static struct oracle_snap *pick(struct oracle *o, unsigned states)
{
    for (unsigned i = 0; i < 64; i++) {
        struct oracle_snap *x = &o->snaps[rnd(ORACLE_SNAPS)];
        if (x->state != O_NONE && states >> x->state & 1) {
            return x;
        }
    }
    return NULL;
}

/* ---- random orders ---- */

static void random_begin(struct oracle *o)
{
    struct oracle_snap *p = rnd(3) ? pick(o, 1u << O_VISIBLE | 1u << O_KEPT) : NULL;
    bool enc = p ? p->is_encrypted : rnd(3) == 0;
    uint32_t n = p ? p->n_blocks + (p->n_blocks < 2500 ? rnd(100) : 0)
                   : (rnd(2) ? 1 + rnd(40) : 2000 + rnd(600));
    struct oracle_snap *x = oracle_new(o, p, enc, n);
    if (x) {
        OK(snap_begin(w.snap, &x->info, &ok_));
        OK(snap_begin(w.snap, &x->info, &ok_)); /* the same again is nothing */
    }
}

static void random_copy(struct oracle *o, struct oracle *other)
{
    struct oracle_snap *from = pick(o, 1u << O_VISIBLE);
    struct oracle *to = rnd(2) ? o : other;
    struct oracle_snap *x =
        from ? oracle_new(to, NULL, rnd(2) ? from->is_encrypted : !from->is_encrypted,
                          from->n_blocks)
             : NULL;
    if (x) {
        memcpy(x->blocks, from->blocks, sizeof(x->blocks));
        OK(snap_copy(w.snap, str_c(o->account), str_c(from->id), &x->info, NULL, NULL, &ok_));
        x->state = O_VISIBLE;
    }
}

static void random_step(struct oracle *o, struct oracle *other)
{
    struct oracle_snap *x = NULL;
    switch (rnd(14)) {
    case 0:
    case 1: random_begin(o); break;
    case 2:
        if ((x = pick(o, 1u << O_PENDING))) {
            commit(x);
        }
        break;
    case 3:
        if ((x = pick(o, 1u << O_PENDING)) && rnd(2)) {
            OK(snap_abort(w.snap, str_c(x->id), &ok_));
            x->state = O_NONE;
        }
        break;
    case 4:
        if ((x = pick(o, 1u << O_VISIBLE | 1u << O_PENDING))) {
            OK(snap_delete(w.snap, str_c(o->account), str_c(x->id), &ok_));
            x->state = O_NONE;
        }
        break;
    case 5:
        if ((x = pick(o, 1u << O_VISIBLE | 1u << O_KEPT))) {
            OK(snap_keep(w.snap, str_c(o->account), str_c(x->id), &ok_));
            x->state = O_KEPT;
        }
        break;
    case 6:
        if ((x = pick(o, 1u << O_KEPT))) {
            OK(snap_unkeep(w.snap, str_c(o->account), str_c(x->id), &ok_));
            x->state = O_NONE;
        }
        break;
    case 7: random_copy(o, other); break;
    case 8:
        if (rnd(3) == 0) {
            world_reopen(&w);
        }
        break;
    case 9:
        if ((x = pick(o, 1u << O_VISIBLE | 1u << O_KEPT))) {
            oracle_check_snap(&w, o, x);
        }
        break;
    default:
        if ((x = pick(o, 1u << O_PENDING))) {
            put(x, rnd(x->n_blocks), rnd(30) < 3 ? 0 : 1 + rnd(40));
        }
    }
}

static void test_random_orders(void **ctx)
{
    static struct oracle o[2];
    uint64_t end = time_mono_ns() + 25 * NS_PER_S;
    (void)ctx;
    oracle_init(&o[0], "111111111111");
    oracle_init(&o[1], "222222222222");
    w.opts.collect_names = 8; /* many ranges */
    world_reopen(&w);
    for (unsigned i = 1; i <= 600 && time_mono_ns() < end; i++) {
        unsigned a = rnd(2);
        random_step(&o[a], &o[1 - a]);
        if (i % 50 == 0) {
            collect(&o[0]);
            collect(&o[1]);
        }
    }
    for (unsigned a = 0; a < 2; a++) {
        for (size_t i = 0; i < ORACLE_SNAPS; i++) {
            struct oracle_snap *x = &o[a].snaps[i];
            if (x->state == O_VISIBLE || x->state == O_KEPT) {
                oracle_check_snap(&w, &o[a], x);
            }
            if (x->state != O_NONE) {
                OK(snap_delete(w.snap, str_c(o[a].account), str_c(x->id), &ok_));
                OK(snap_unkeep(w.snap, str_c(o[a].account), str_c(x->id), &ok_));
                x->state = O_NONE;
            }
        }
        collect(&o[a]); /* nothing is left but the keys */
        oracle_done(&o[a]);
    }
    w.opts.collect_names = 0;
    world_reopen(&w);
}

/* ---- chains ---- */

static void test_parent_goes_first(void **ctx)
{
    static struct oracle o;
    (void)ctx;
    oracle_init(&o, "333333333333");
    struct oracle_snap *a = begin(&o, NULL, false, 2000);
    put(a, 0, 1);
    put(a, 1500, 2);
    commit(a);
    struct oracle_snap *b = begin(&o, a, false, 2000);
    /* Its parent goes while it is under way: what it began from stays. */
    OK(snap_delete(w.snap, str_c(o.account), str_c(a->id), &ok_));
    a->state = O_NONE;
    collect(&o);
    put(b, 1, 3);
    world_reopen(&w);
    collect(&o);
    commit(b);
    collect(&o);
    oracle_check_snap(&w, &o, b);
    /* Two that share pages: one goes, the other is whole. */
    struct oracle_snap *c = begin(&o, b, false, 2000);
    put(c, 1999, 9);
    commit(c);
    uint64_t at = 0;
    OK(snap_next(w.snap, str_c(o.account), str_c(b->id), str_c(o.account), str_c(c->id), 0, &at,
                 &ok_));
    assert_int_equal(at, 1999);
    OK(snap_next(w.snap, str_c(o.account), str_c(b->id), str_c(o.account), str_c(c->id), 2000,
                 &at, &ok_));
    assert_true(at == UINT64_MAX);
    OK(snap_delete(w.snap, str_c(o.account), str_c(b->id), &ok_));
    b->state = O_NONE;
    collect(&o);
    oracle_check_snap(&w, &o, c);
    oracle_done(&o);
}

static void test_sparse_4_tib(void **ctx)
{
    struct snap_info i = {.id = "snap-4tib", .account = "444444444444"}, got;
    struct str account = str_c(i.account), id = str_c(i.id);
    uint64_t last = 0, at = 0;
    struct snap_usage u;
    (void)ctx;
    i.size = UINT64_C(4) << 40;
    last = i.size / SNAP_BLOCK - 1;
    OK(snap_begin(w.snap, &i, &ok_));
    world_fill(7, w.buf);
    OK(snap_put(w.snap, id, last, w.buf, NULL, &ok_));
    assert_int_equal(snap_put(w.snap, id, last + 1, w.buf, NULL, NULL), -EINVAL);
    uint64_t begun = time_mono_ns();
    OK(snap_commit(w.snap, id, &got, &ok_));
    assert_int_equal(got.n_blocks, 1);
    assert_int_equal(got.n_zero, last);
    OK(snap_next(w.snap, account, id, STR_NONE, STR_NONE, 0, &at, &ok_));
    assert_int_equal(at, last);
    assert_true(time_mono_ns() - begun < 10 * NS_PER_S);
    assert_int_equal(snap_get(w.snap, account, id, 5, w.buf, NULL), 1);
    assert_true(snap_block_is_zero(w.buf));
    OK(snap_collect(w.snap, account, &u, &ok_));
    assert_int_equal(u.n_pages, 1);
    assert_int_equal(u.bytes, SNAP_BLOCK + 8 + 128 + 32);
    OK(snap_delete(w.snap, account, id, &ok_));
    OK(snap_collect(w.snap, account, &u, &ok_));
    assert_int_equal(u.freed_bytes, SNAP_BLOCK + 8 + 128 + 32);
}

/* ---- damage ---- */

static void overwrite(const char *key, const void *p, size_t n)
{
    struct str body = str_n(p, n);
    const struct snap_s3_put put = {
        .key = key, .body = body, .crc = (uint32_t)crc_add(CRC_32C, 0, body)};
    OK(snap_s3_put(w.s3, &put, &ok_));
}

static void damage_block(bool is_enc)
{
    static struct oracle o;
    uint8_t name[1][SNAP_NAME];
    char key[SNAP_KEY_MAX];
    AUTO_FREE char *object = malloc(SNAP_SEALED);
    size_t n = 0;
    struct err e = ERR_INIT;
    struct snap_usage u;
    oracle_init(&o, is_enc ? "555555555555" : "666666666666");
    struct oracle_snap *x = begin(&o, NULL, is_enc, 4);
    put(x, 1, 77);
    put(x, 2, 78);
    commit(x);
    struct str account = str_c(o.account), id = str_c(x->id);
    OK(snap_names(w.snap, account, id, 1, 1, name, &ok_));
    snap_key_name('b', account, name[0], key);
    OK(snap_s3_get(w.s3, key, object, SNAP_SEALED, &n, &ok_));
    object[n / 2] ^= 1;
    overwrite(key, object, n);
    assert_int_equal(snap_get(w.snap, account, id, 1, w.buf, &e), -EBADMSG);
    assert_string_equal(e.name, "BlockDamaged");
    OK(snap_check(w.snap, account, true, &u, &ok_));
    assert_int_equal(u.n_damaged, 1);
    overwrite(key, object, n - 1); /* cut off */
    assert_int_equal(snap_get(w.snap, account, id, 1, w.buf, NULL), -EBADMSG);
    OK(snap_check(w.snap, account, false, &u, &ok_));
    assert_int_equal(u.n_damaged, 1);
    /* Another block's bytes under this name: whole, and sealed by the right key. */
    char other[SNAP_KEY_MAX];
    OK(snap_names(w.snap, account, id, 2, 1, name, &ok_));
    snap_key_name('b', account, name[0], other);
    OK(snap_s3_get(w.s3, other, object, SNAP_SEALED, &n, &ok_));
    overwrite(key, object, n);
    assert_int_equal(snap_get(w.snap, account, id, 1, w.buf, NULL), -EBADMSG);
    /* Absent is not zeros. */
    OK(snap_s3_delete(w.s3, key, &ok_));
    err_clear(&e);
    assert_int_equal(snap_get(w.snap, account, id, 1, w.buf, &e), -ENOENT);
    assert_string_equal(e.name, "NoSuchBlock");
    OK(snap_check(w.snap, account, false, &u, &ok_));
    assert_int_equal(u.n_missing, 1);
    /* Whoever puts the same bytes again heals it. */
    struct oracle_snap *y = begin(&o, NULL, is_enc, 4);
    put(y, 0, 77);
    oracle_check_snap(&w, &o, x);
    oracle_done(&o);
}

static void test_damaged_block_is_never_data(void **ctx)
{
    (void)ctx;
    damage_block(false);
    damage_block(true);
}

static void test_damaged_manifest_frees_nothing(void **ctx)
{
    static struct oracle o;
    char key[SNAP_KEY_MAX], page[SNAP_KEY_MAX];
    AUTO_FREE char *object = malloc(SNAP_PAGE_MAX);
    size_t n = 0;
    struct err e = ERR_INIT;
    struct snap_usage u;
    (void)ctx;
    oracle_init(&o, "777777777777");
    struct oracle_snap *x = begin(&o, NULL, false, 1500);
    put(x, 1, 5);
    commit(x);
    struct str account = str_c(o.account), id = str_c(x->id);
    snap_key_id('m', account, id, key);
    OK(snap_s3_get(w.s3, key, object, SNAP_PAGE_MAX, &n, &ok_));
    char page_of[SNAP_NAME];
    memcpy(page_of, object + 128, SNAP_NAME);
    object[130] ^= 1;
    overwrite(key, object, n);
    world_reopen(&w);
    assert_int_equal(snap_stat(w.snap, account, id, &x->info, &e), -EBADMSG);
    assert_string_equal(e.name, "ManifestDamaged");
    assert_int_equal(snap_collect(w.snap, account, &u, NULL), -EBADMSG);
    OK(snap_check(w.snap, account, false, &u, &ok_));
    assert_int_equal(u.n_damaged, 1);
    object[130] ^= 1;
    overwrite(key, object, n);
    oracle_check_snap(&w, &o, x); /* nothing was freed */
    collect(&o);
    /* The same with a page. */
    snap_key_name('p', account, (const uint8_t *)page_of, page);
    OK(snap_s3_get(w.s3, page, object, SNAP_PAGE_MAX, &n, &ok_));
    object[n - 1] ^= 1;
    overwrite(page, object, n);
    world_reopen(&w);
    assert_int_equal(snap_get(w.snap, account, id, 1, w.buf, NULL), -EBADMSG);
    assert_int_equal(snap_collect(w.snap, account, &u, NULL), -EBADMSG);
    object[n - 1] ^= 1;
    overwrite(page, object, n);
    collect(&o);
    oracle_check_snap(&w, &o, x);
    oracle_done(&o);
}

/* ---- the store is not there ---- */

static void test_store_away_slow_full(void **ctx)
{
    static struct oracle o;
    struct err e = ERR_INIT;
    (void)ctx;
    oracle_init(&o, "888888888888");
    w.opts.stall_ns = 500 * NS_PER_MS;
    world_reopen(&w);
    struct oracle_snap *x = begin(&o, NULL, false, 10);
    put(x, 1, 50);
    struct str id = str_c(x->id), account = str_c(o.account);
    world_fill(51, w.buf);
    daemon_signal(w.store, SIGSTOP);
    assert_int_equal(snap_put(w.snap, id, 2, w.buf, NULL, &e), -EAGAIN);
    assert_string_equal(e.name, "StoreUnavailable");
    daemon_signal(w.store, SIGCONT);
    put(x, 2, 51);
    daemon_kill(w.store);
    world_fill(52, w.buf);
    err_clear(&e);
    assert_int_equal(snap_put(w.snap, id, 3, w.buf, NULL, &e), -EAGAIN);
    assert_string_equal(e.name, "StoreUnavailable");
    assert_int_equal(snap_commit(w.snap, id, NULL, NULL), -EAGAIN);
    assert_int_equal(snap_collect(w.snap, account, NULL, NULL), -EAGAIN);
    assert_int_equal(snap_delete(w.snap, account, id, NULL), -EAGAIN);
    err_clear(&e);
    if (daemon_restart(w.store, &e) < 0) {
        fail_msg("%s", e.msg);
    }
    put(x, 3, 52);
    commit(x);
    collect(&o);
    oracle_check_snap(&w, &o, x);
    w.opts.stall_ns = 0;
    world_reopen(&w);
    oracle_done(&o);
}

/* ---- encryption ---- */

static void test_locked_keys(void **ctx)
{
    static struct oracle o;
    struct err e = ERR_INIT;
    struct snap_usage u;
    (void)ctx;
    oracle_init(&o, "999999999999");
    struct oracle_snap *x = begin(&o, NULL, true, 10);
    put(x, 1, 60);
    keys_lock(w.keys);
    world_fill(61, w.buf);
    assert_int_equal(snap_put(w.snap, str_c(x->id), 2, w.buf, NULL, &e), -EACCES);
    assert_string_equal(e.name, "Locked");
    commit(x); /* names need no keys */
    assert_int_equal(snap_get(w.snap, str_c(o.account), str_c(x->id), 1, w.buf, NULL), -EACCES);
    assert_int_equal(snap_get(w.snap, str_c(o.account), str_c(x->id), 2, w.buf, NULL), 1);
    OK(snap_collect(w.snap, str_c(o.account), &u, &ok_));
    assert_int_equal(u.n_blocks, 1);
    OK(keys_unlock(w.keys, &ok_));
    oracle_check_snap(&w, &o, x);
    collect(&o);
    oracle_done(&o);
}

/* No bytes of a block are in any object, and the same bytes have other names elsewhere. */
static void test_encrypted_tells_nothing(void **ctx)
{
    static struct oracle o[2];
    uint8_t names[3][SNAP_NAME];
    AUTO_FREE char *object = malloc(SNAP_SEALED);
    char key[SNAP_KEY_MAX];
    size_t n = 0;
    (void)ctx;
    oracle_init(&o[0], "121212121212");
    oracle_init(&o[1], "131313131313");
    for (unsigned i = 0; i < 2; i++) {
        struct oracle_snap *x = begin(&o[i], NULL, true, 4);
        put(x, 0, 99);
        commit(x);
        OK(snap_names(w.snap, str_c(o[i].account), str_c(x->id), 0, 1, &names[i], &ok_));
        snap_key_name('b', str_c(o[i].account), names[i], key);
        OK(snap_s3_get(w.s3, key, object, SNAP_SEALED, &n, &ok_));
        world_fill(99, w.buf);
        for (size_t at = 0; at + 64 <= SNAP_BLOCK; at += 64) {
            assert_null(memmem(object, n, (char *)w.buf + at, 16));
            if (at > 4096) {
                break;
            }
        }
    }
    sha256(str_n(w.buf, SNAP_BLOCK), names[2]);
    assert_memory_not_equal(names[0], names[1], SNAP_NAME);
    assert_memory_not_equal(names[0], names[2], SNAP_NAME);
    oracle_done(&o[0]);
    oracle_done(&o[1]);
}

/* Two that make the keys of an account at once agree on them. */
static void test_two_makers_of_keys(void **ctx)
{
    struct snap_keys_pair a, b;
    struct snap_store *other = NULL;
    char dir[PATH_MAX];
    struct snap_opts o = w.opts;
    (void)ctx;
    o.pending_dir = tmpdir_path(&w.dir, "pending2", dir);
    OK(snap_open(&o, &other, &ok_));
    OK(snap_keys_get(w.snap, STR("141414141414"), true, &a, &ok_));
    OK(snap_keys_get(other, STR("141414141414"), true, &b, &ok_));
    assert_memory_equal(&a, &b, sizeof(a));
    snap_close(other);
}

static void test_refusals(void **ctx)
{
    static struct oracle o;
    struct err e = ERR_INIT;
    (void)ctx;
    oracle_init(&o, "151515151515");
    struct oracle_snap *x = begin(&o, NULL, false, 100);
    struct snap_info i = x->info;
    i.size += 1;
    assert_int_equal(snap_begin(w.snap, &i, &e), -EEXIST);
    assert_string_equal(e.name, "UploadDiffers");
    put(x, 0, 4);
    commit(x);
    err_clear(&e);
    assert_int_equal(snap_begin(w.snap, &x->info, &e), -EEXIST);
    assert_string_equal(e.name, "SnapshotExists");
    assert_int_equal(snap_commit(w.snap, str_c(x->id), NULL, NULL), -ENOENT);
    struct {
        const char *id, *account, *parent;
        uint64_t size;
        bool enc;
        int want;
    } cases[] = {
        {"snap-x1", o.account, x->id, SNAP_BLOCK, false, -EINVAL},      /* smaller */
        {"snap-x2", o.account, x->id, 200 * SNAP_BLOCK, true, -EINVAL}, /* encryption */
        {"snap-x3", o.account, "snap-none", SNAP_BLOCK, false, -ENOENT},
        {"snap-x4", "161616161616", x->id, 200 * SNAP_BLOCK, false, -ENOENT}, /* another's */
        {"snap/x5", o.account, "", SNAP_BLOCK, false, -EINVAL},
        {"", o.account, "", SNAP_BLOCK, false, -EINVAL},
        {"snap-x6", "../x", "", SNAP_BLOCK, false, -EINVAL},
        {"snap-x7", o.account, "", 0, false, -EINVAL},
        {"snap-x8", o.account, "", SNAP_SIZE_MAX + 1, false, -EINVAL},
    };
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        struct snap_info c = {.size = cases[k].size, .is_encrypted = cases[k].enc};
        snprintf(c.id, sizeof(c.id), "%s", cases[k].id);
        snprintf(c.account, sizeof(c.account), "%s", cases[k].account);
        snprintf(c.parent, sizeof(c.parent), "%s", cases[k].parent);
        assert_int_equal(snap_begin(w.snap, &c, NULL), cases[k].want);
    }
    assert_int_equal(snap_put(w.snap, STR("snap-none"), 0, NULL, NULL, NULL), -ENOENT);
    assert_int_equal(snap_delete(w.snap, STR("111"), STR("snap-none"), NULL), 0);
    assert_int_equal(snap_keep(w.snap, STR("111"), STR("snap-none"), NULL), -ENOENT);
    assert_int_equal(snap_abort(w.snap, STR("snap-none"), NULL), 0);
    collect(&o);
    oracle_done(&o);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parent_goes_first),
        cmocka_unit_test(test_sparse_4_tib),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_damaged_block_is_never_data),
        cmocka_unit_test(test_damaged_manifest_frees_nothing),
        cmocka_unit_test(test_locked_keys),
        cmocka_unit_test(test_encrypted_tells_nothing),
        cmocka_unit_test(test_two_makers_of_keys),
        cmocka_unit_test(test_random_orders),
        cmocka_unit_test(test_store_away_slow_full),
    };
    if (argc < 4) {
        return 2;
    }
    args = argv;
    return cmocka_run_group_tests(tests, setup, teardown);
}

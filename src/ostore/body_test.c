#include "ostore/body_int.h"

#include "crypto/digest.h"
#include "keys/keys.h"
#include "ostore/drive.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cmocka.h>

static char top[64];
static unsigned n_worlds;

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    return remove(path);
}

static int set_up(void **state)
{
    (void)snprintf(top, sizeof(top), "/tmp/body-test-XXXXXX");
    return mkdtemp(top) ? 0 : -1;
}

static int tear_down(void **state)
{
    return nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* --- a root key in memory that can be locked --- */

struct root {
    uint8_t key[KEYS_ROOT_SIZE];
    bool is_locked;
};

static int fetch(void *ctx, struct secret *ret, struct err *err)
{
    const struct root *r = ctx;
    return r->is_locked ? (fail)(err, -EACCES, "Locked", "locked")
                        : secret_set(ret, str_n((const char *)r->key, sizeof(r->key)));
}

static const struct keys_provider provider = {.name = "test", .fetch = fetch};

struct world {
    char path[3][96];
    const char *paths[3];
    struct drives *drives;
    struct root root;
    struct keys *keys;
    struct arena *arena;
};

static void drives_up(struct world *w)
{
    struct drives_opts o = {.paths = w->paths, .n = 3};
    struct err err = ERR_INIT;
    int r = drives_open(&o, &w->drives, &err);
    if (r < 0) {
        fail_msg("%s", err.msg);
    }
}

static struct world *world_new(void)
{
    struct world *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    for (unsigned i = 0; i < 3; i++) {
        (void)snprintf(w->path[i], sizeof(w->path[i]), "%s/w%u-%u", top, n_worlds, i);
        w->paths[i] = w->path[i];
        assert_int_equal(mkdir(w->path[i], 0700), 0);
    }
    n_worlds++;
    w->root.key[0] = 7;
    w->arena = arena_new(1 << 20);
    drives_up(w);
    assert_int_equal(keys_open(&provider, &w->root, &w->keys, NULL), 0);
    return w;
}

static void world_free(struct world *w)
{
    drives_close(w->drives);
    keys_close(w->keys);
    arena_free(w->arena);
    free(w);
}

static char *ring_path(struct world *w, unsigned i, char buf[160])
{
    (void)snprintf(buf, 160, "%s/keyring.json", w->path[i]);
    return buf;
}

/* --- blocks --- */

static void fill(uint8_t *p, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++) {
        p[i] = (uint8_t)(seed + i * 131 + (i >> 8) * 7);
    }
}

static void round_trips(struct world *w, const struct body_keys *keys)
{
    static const size_t sizes[] = {0, 1, 15, 16, 17, 4096, BODY_PLAIN - 1, BODY_PLAIN};
    static uint8_t plain[BODY_PLAIN], stored[BODY_BLOCK], out[BODY_BLOCK];
    struct body_codec c, d;
    struct orec_body b;
    assert_int_equal(body_codec_new(&c, keys, w->arena, &b, NULL), 0);
    assert_true(b.is_set && b.is_sealed == (keys != NULL) && b.block_size == BODY_BLOCK);
    assert_int_equal(body_codec_open(&d, keys, &b, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        size_t n = sizes[i];
        for (uint64_t block = 0; block < 3; block++) {
            fill(plain, n, (unsigned)block);
            body_seal(&c, block << 33, plain, n, stored);
            assert_int_equal(body_open(&d, block << 33, stored, n + BODY_TRAILER, out), 0);
            assert_memory_equal(out, plain, n);
            assert_int_equal(body_open(&d, (block << 33) + 1, stored, n + BODY_TRAILER, out),
                             -EBADMSG);
            memcpy(out, plain, n); /* in place, both ways */
            body_seal(&c, block << 33, out, n, out);
            assert_memory_equal(out, stored, n + BODY_TRAILER);
            assert_int_equal(body_open(&d, block << 33, out, n + BODY_TRAILER, out), 0);
            assert_memory_equal(out, plain, n);
        }
        if (keys && n > 15) {
            assert_memory_not_equal(stored, plain, n);
        }
    }
    body_codec_done(&c);
    body_codec_done(&d);
}

/* No bit of a block may change, no block may be cut, grow, or belong to another body. */
static void tampered(struct world *w, const struct body_keys *keys)
{
    uint8_t plain[50], stored[50 + BODY_TRAILER + 1] = {0}, out[128];
    struct body_codec c, other;
    struct orec_body b, b2;
    assert_int_equal(body_codec_new(&c, keys, w->arena, &b, NULL), 0);
    assert_int_equal(body_codec_new(&other, keys, w->arena, &b2, NULL), 0);
    assert_memory_not_equal(b.id, b2.id, sizeof(b.id));
    fill(plain, sizeof(plain), 3);
    body_seal(&c, 9, plain, sizeof(plain), stored);
    size_t n = sizeof(plain) + BODY_TRAILER;
    for (size_t bit = 0; bit < 8 * n; bit++) {
        stored[bit / 8] = (uint8_t)(stored[bit / 8] ^ (1 << bit % 8));
        assert_int_equal(body_open(&c, 9, stored, n, out), -EBADMSG);
        stored[bit / 8] = (uint8_t)(stored[bit / 8] ^ (1 << bit % 8));
    }
    for (size_t cut = 0; cut <= n + 1; cut++) {
        assert_int_equal(body_open(&c, 9, stored, cut, out), cut == n ? 0 : -EBADMSG);
    }
    assert_int_equal(body_open(&c, 9, stored, BODY_BLOCK + 1, out), -EBADMSG);
    assert_int_equal(body_open(&other, 9, stored, n, out), -EBADMSG);
    body_codec_done(&c);
    body_codec_done(&other);
}

static void test_blocks(void **state)
{
    struct world *w = world_new();
    struct body_keys *keys = NULL;
    assert_int_equal(body_keys_open(w->drives, w->keys, &keys, NULL), 0);
    round_trips(w, NULL);
    round_trips(w, keys);
    tampered(w, NULL);
    tampered(w, keys);
    body_keys_close(keys);
    world_free(w);
}

static void test_sizes(void **state)
{
    assert_int_equal(body_stored_size(0), 0);
    assert_int_equal(body_stored_size(1), 17);
    assert_int_equal(body_stored_size(BODY_PLAIN), BODY_BLOCK);
    assert_int_equal(body_stored_size(BODY_PLAIN + 1), BODY_BLOCK + 17);
}

/* The form on disk does not change by accident: a block of known bytes. */
static void test_form(void **state)
{
    struct orec_body b = {.is_set = true, .block_size = BODY_BLOCK};
    struct body_codec c;
    uint8_t stored[3 + BODY_TRAILER];
    char hex[2 * sizeof(stored) + 1];
    for (unsigned i = 0; i < 16; i++) {
        b.id[i] = (uint8_t)i;
    }
    assert_int_equal(body_codec_open(&c, NULL, &b, NULL), 0);
    body_seal(&c, 258, "abc", 3, stored);
    digest_hex(stored, sizeof(stored), hex);
    /* CRC32C of 00..0f, 02 01 00 00 00 00 00 00, "abc" */
    assert_string_equal(hex, "61626318e278ff000000000000000000000000");
    body_codec_done(&c);
    b.block_size = 4096;
    assert_int_equal(body_codec_open(&c, NULL, &b, NULL), -ENOTSUP);
}

/* --- the ring --- */

static void test_ring_again(void **state)
{
    struct world *w = world_new();
    struct body_keys *keys = NULL;
    struct orec_body old, new;
    struct body_codec c;
    uint8_t stored[64], out[64];
    assert_int_equal(body_keys_open(w->drives, w->keys, &keys, NULL), 0);
    uint32_t first = body_keys_current(keys);
    assert_int_equal(body_codec_new(&c, keys, w->arena, &old, NULL), 0);
    body_seal(&c, 0, "before", 6, stored);
    body_codec_done(&c);
    assert_int_equal(body_keys_rotate(keys, NULL), 0);
    assert_int_not_equal(body_keys_current(keys), first);
    assert_int_equal(body_codec_new(&c, keys, w->arena, &new, NULL), 0);
    body_codec_done(&c);
    assert_int_equal(new.key_id, body_keys_current(keys));
    body_keys_close(keys);
    drives_close(w->drives);
    drives_up(w);
    assert_int_equal(body_keys_open(w->drives, w->keys, &keys, NULL), 0);
    assert_int_equal(body_keys_current(keys), new.key_id);
    assert_int_equal(body_codec_open(&c, keys, &old, NULL), 0);
    assert_int_equal(body_open(&c, 0, stored, 6 + BODY_TRAILER, out), 0);
    assert_memory_equal(out, "before", 6);
    body_codec_done(&c);
    old.key_id = new.key_id; /* another key of the ring */
    assert_int_equal(body_codec_open(&c, keys, &old, NULL), -EBADMSG);
    old.key_id = 1 + MAX(first, new.key_id);
    assert_int_equal(body_codec_open(&c, keys, &old, NULL), -ENOKEY);
    old.wrapped_key = str_n(old.wrapped_key.p, 39);
    old.key_id = first;
    assert_int_equal(body_codec_open(&c, keys, &old, NULL), -EBADMSG);
    assert_int_equal(body_codec_open(&c, NULL, &old, NULL), -EACCES);
    body_keys_close(keys);
    world_free(w);
}

static void test_locked(void **state)
{
    struct world *w = world_new();
    struct body_keys *keys = NULL;
    struct err err = ERR_INIT;
    char path[160];
    w->root.is_locked = true;
    keys_lock(w->keys);
    assert_int_equal(body_keys_open(w->drives, w->keys, &keys, &err), -EACCES);
    assert_string_equal(err.name, "Locked");
    assert_int_equal(body_keys_open(w->drives, NULL, &keys, NULL), -EACCES);
    assert_int_equal(access(ring_path(w, 0, path), F_OK), -1); /* nothing was made */
    w->root.is_locked = false;
    assert_int_equal(keys_unlock(w->keys, NULL), 0);
    assert_int_equal(body_keys_open(w->drives, w->keys, &keys, NULL), 0);
    body_keys_close(keys);
    world_free(w);
}

static void test_other_root(void **state)
{
    struct world *w = world_new();
    struct body_keys *keys = NULL;
    struct err err = ERR_INIT;
    assert_int_equal(body_keys_open(w->drives, w->keys, &keys, NULL), 0);
    body_keys_close(keys);
    keys_close(w->keys);
    w->root.key[0] = 8;
    assert_int_equal(keys_open(&provider, &w->root, &w->keys, NULL), 0);
    assert_int_equal(body_keys_open(w->drives, w->keys, &keys, &err), -EBADMSG);
    assert_string_equal(err.name, "WrongKey");
    world_free(w);
}

static void flip(const char *path, off_t off)
{
    AUTO_FD fd = open(path, O_RDWR | O_CLOEXEC);
    char c = 0;
    assert_true(fd >= 0 && pread(fd, &c, 1, off) == 1);
    c = (char)(c ^ 1);
    assert_int_equal(pwrite(fd, &c, 1, off), 1);
}

static off_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_size : -1;
}

/* Copies are lost or damaged, byte by byte: the others are used and repair them; a new ring is
 * made only when there never was one. */
static void test_ring_damage(void **state)
{
    struct world *w = world_new();
    struct body_keys *keys = NULL;
    char path[3][160];
    assert_int_equal(body_keys_open(w->drives, w->keys, &keys, NULL), 0);
    uint32_t id = body_keys_current(keys);
    body_keys_close(keys);
    for (unsigned i = 0; i < 3; i++) {
        off_t n = size_of(ring_path(w, i, path[i]));
        assert_true(n > 100);
        struct stat st;
        assert_int_equal(stat(path[i], &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
    }
    for (off_t at = 0; at < size_of(path[0]); at += 7) {
        flip(path[1], at);
        assert_int_equal(body_keys_open(w->drives, w->keys, &keys, NULL), 0);
        assert_int_equal(body_keys_current(keys), id);
        body_keys_close(keys);
    }
    assert_int_equal(unlink(path[0]), 0);
    assert_int_equal(unlink(path[1]), 0);
    assert_int_equal(body_keys_open(w->drives, w->keys, &keys, NULL), 0);
    assert_int_equal(body_keys_current(keys), id);
    body_keys_close(keys);
    assert_int_equal(size_of(path[0]), size_of(path[2]));
    for (off_t at = 0; at < size_of(path[0]); at += 11) {
        for (unsigned i = 0; i < 3; i++) {
            flip(path[i], at);
        }
        assert_true(body_keys_open(w->drives, w->keys, &keys, NULL) < 0);
        for (unsigned i = 0; i < 3; i++) {
            flip(path[i], at);
        }
    }
    assert_int_equal(unlink(path[1]), 0);
    assert_int_equal(truncate(path[0], 20), 0);
    flip(path[2], 60); /* one gone, two bad: still no new one */
    assert_int_equal(body_keys_open(w->drives, w->keys, &keys, NULL), -EBADMSG);
    flip(path[2], 60);
    assert_int_equal(body_keys_open(w->drives, w->keys, &keys, NULL), 0);
    assert_int_equal(unlink(path[1]), 0);
    assert_int_equal(body_keys_spread(keys, NULL), 0);
    assert_true(size_of(path[1]) > 100);
    body_keys_close(keys);
    world_free(w);
}

/* Rotation on drives of which one was away: the newest ring wins, and no key is forgotten. */
static void test_rings_merge(void **state)
{
    struct world *w = world_new();
    struct body_keys *keys = NULL;
    char path[160], kept[170], cmd_path[160];
    assert_int_equal(body_keys_open(w->drives, w->keys, &keys, NULL), 0);
    uint32_t first = body_keys_current(keys);
    (void)snprintf(kept, sizeof(kept), "%s.old", ring_path(w, 0, path));
    assert_int_equal(link(path, kept), 0); /* replaced by rename: the old bytes stay */
    assert_int_equal(body_keys_rotate(keys, NULL), 0);
    uint32_t second = body_keys_current(keys);
    body_keys_close(keys);
    assert_int_equal(rename(kept, path), 0);
    assert_int_equal(body_keys_open(w->drives, w->keys, &keys, NULL), 0);
    assert_int_equal(body_keys_current(keys), second);
    assert_int_equal(size_of(path), size_of(ring_path(w, 1, cmd_path)));
    struct orec_body b = {.is_sealed = true, .block_size = BODY_BLOCK, .key_id = first};
    struct body_codec c;
    assert_int_equal(body_codec_open(&c, keys, &b, NULL), -EBADMSG); /* known, but no text */
    body_keys_close(keys);
    world_free(w);
}

static void test_ring_limits(void **state)
{
    struct world *w = world_new();
    struct body_keys *keys = NULL;
    assert_int_equal(body_keys_open(w->drives, w->keys, &keys, NULL), 0);
    for (unsigned i = 1; i < 40; i++) {
        assert_int_equal(body_keys_rotate(keys, NULL), 0);
    }
    uint32_t id = body_keys_current(keys);
    body_keys_close(keys);
    assert_int_equal(body_keys_open(w->drives, w->keys, &keys, NULL), 0);
    assert_int_equal(body_keys_current(keys), id);
    body_keys_close(keys);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),      cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_form),        cmocka_unit_test(test_ring_again),
        cmocka_unit_test(test_locked),      cmocka_unit_test(test_other_root),
        cmocka_unit_test(test_ring_damage), cmocka_unit_test(test_rings_merge),
        cmocka_unit_test(test_ring_limits),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

#include "base/test.h"

#include "kv/kv_proto.h"

#include <errno.h>

static void test_txn(void **state)
{
    (void)state;
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    struct kv_cmp cmp[2] = {{STR("a"), 7}, {STR("b"), 0}};
    struct kv_op op[2] = {
        {.type = KV_PUT, .key = STR("k"), .value = {"v\0w", 3}, .lease = UINT64_MAX},
        {.type = KV_DELETE, .key = STR("gone")}};
    struct kvp_txn in = {cmp, 2, op, 2}, out = {0};
    AUTO_BUF b;
    struct err err = ERR_INIT;
    buf_init(&b, 4096);
    kvp_put_txn(&b, &in);
    assert_int_equal(kvp_get_txn(buf_str(&b), a, &out, &err), 0);
    assert_int_equal(out.n_cmp, 2);
    assert_str(out.cmp[0].key, "a");
    assert_int_equal(out.cmp[0].mod_rev, 7);
    assert_int_equal(out.n_op, 2);
    assert_true(str_eq(out.op[0].value, op[0].value));
    assert_true(out.op[0].lease == UINT64_MAX);
    assert_int_equal(out.op[1].type, KV_DELETE);
    assert_str(out.op[1].key, "gone");
    for (size_t n = 0; n < b.n; n++) { /* every shorter form is refused */
        err_clear(&err);
        assert_int_equal(kvp_get_txn(str_n(b.p, n), a, &out, &err), -EBADMSG);
        assert_string_equal(err.name, "BadMessage");
    }
    buf_add_char(&b, 0);
    assert_int_equal(kvp_get_txn(buf_str(&b), a, &out, NULL), -EBADMSG);
}

static void test_bytes(void **state)
{
    (void)state;
    /* the form on the wire is what docs/formats/kv-rpc.md says */
    AUTO_BUF b;
    buf_init(&b, 4096);
    kvp_put_watch(&b, &(struct kvp_watch){UINT64_C(0x0102030405060708), 9, 10, STR("ab")});
    static const char want[] = "\x08\7\6\5\4\3\2\1"
                               "\x09\0\0\0"
                               "\x0a\0\0\0\0\0\0\0"
                               "\2\0\0\0ab";
    assert_int_equal(b.n, sizeof(want) - 1);
    assert_memory_equal(b.p, want, b.n);
    buf_clear(&b);
    struct kv_event ev = {.type = KV_EVENT_DELETE,
                          .item = {.key = STR("k"), .create_rev = 1, .mod_rev = 2}};
    kvp_put_event(&b, 3, &ev);
    static const char want2[] = "\3\0\0\0"
                                "\2"
                                "\1\0\0\0k"
                                "\1\0\0\0\0\0\0\0"
                                "\2\0\0\0\0\0\0\0";
    assert_int_equal(b.n, sizeof(want2) - 1);
    assert_memory_equal(b.p, want2, b.n);
}

static void test_limits(void **state)
{
    (void)state;
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    AUTO_BUF b;
    buf_init(&b, 4096);
    struct kvp_txn out;
    kvp_put_u32(&b, KV_MAX_OPS + 1); /* refused before anything is allocated for it */
    assert_int_equal(kvp_get_txn(buf_str(&b), a, &out, NULL), -EBADMSG);
    assert_true(arena_used(a) < 64);
    struct kv_list list;
    buf_clear(&b);
    kvp_put_u64(&b, 1);
    buf_add_char(&b, 0);
    kvp_put_u32(&b, UINT32_MAX);
    assert_int_equal(kvp_get_list_reply(buf_str(&b), a, &list, NULL), -EBADMSG);
    struct str key;
    buf_clear(&b);
    kvp_put_u32(&b, UINT32_MAX);
    assert_int_equal(kvp_get_key(buf_str(&b), &key, NULL), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_txn),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

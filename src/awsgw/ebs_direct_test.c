/* Tokens of the EBS direct APIs: for whom, for what, and until when. */
#include "base/test.h"

#include "awsgw/ebs_direct.h"

static struct aws_call call_of(struct arena *a, const char *account, uint64_t now_ns)
{
    return (struct aws_call){.arena = a,
                             .account = str_c(account),
                             .now_ns = now_ns,
                             .page_key = STR("0123456789abcdef0123456789abcdef")};
}

static void test_tokens(void **ctx)
{
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    uint64_t now = UINT64_C(1700000000) * NS_PER_S;
    struct aws_call c = call_of(a, "111111111111", now);
    const struct ebs_token_of of = {.what = "block", .snapshot = STR("snap-1"), .block = 7};
    struct str t = ebs_token_make(&c, &of, EBS_TOKEN_LIFE_NS);
    (void)ctx;
    assert_true(t.n <= 256);
    assert_true(ebs_token_check(&c, &of, t));
    /* Until the end, and not a second longer. */
    struct aws_call late = call_of(a, "111111111111", now + EBS_TOKEN_LIFE_NS - NS_PER_S);
    assert_true(ebs_token_check(&late, &of, t));
    late.now_ns += NS_PER_S;
    assert_false(ebs_token_check(&late, &of, t));
    /* Another account, block, snapshot, kind, key: no. */
    struct aws_call other = call_of(a, "222222222222", now);
    assert_false(ebs_token_check(&other, &of, t));
    struct ebs_token_of x = of;
    x.block = 8;
    assert_false(ebs_token_check(&c, &x, t));
    x = of;
    x.snapshot = STR("snap-2");
    assert_false(ebs_token_check(&c, &x, t));
    x = of;
    x.what = "ListSnapshotBlocks";
    assert_false(ebs_token_check(&c, &x, t));
    x = of;
    x.other = STR("snap-1");
    assert_false(ebs_token_check(&c, &x, t));
    other = c;
    other.page_key = STR("0123456789abcdef0123456789abcdeX");
    assert_false(ebs_token_check(&other, &of, t));
    /* Every changed byte, and every length. */
    for (size_t i = 0; i < t.n; i++) {
        char copy[256];
        memcpy(copy, t.p, t.n);
        copy[i] = copy[i] == 'A' ? 'B' : 'A';
        assert_false(ebs_token_check(&c, &of, str_n(copy, t.n)));
        assert_false(ebs_token_check(&c, &of, str_n(t.p, i)));
    }
}

static void test_pages(void **ctx)
{
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    struct aws_call c = call_of(a, "111111111111", UINT64_C(1700000000) * NS_PER_S);
    struct ebs_token_of of = {
        .what = "ListChangedBlocks", .snapshot = STR("snap-2"), .other = STR("snap-1")};
    of.block = UINT64_C(1) << 40;
    struct str t = ebs_token_make(&c, &of, EBS_PAGE_LIFE_NS);
    (void)ctx;
    of.block = 0;
    assert_true(ebs_page_check(&c, &of, t));
    assert_true(of.block == UINT64_C(1) << 40);
    of.other = STR("");
    assert_false(ebs_page_check(&c, &of, t));
    of.other = STR("snap-1");
    c.now_ns += EBS_PAGE_LIFE_NS;
    assert_false(ebs_page_check(&c, &of, t));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "net/chunkq.h"

#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

/* Takes everything out in steps of 'step' bytes. */
static void drain(struct chunkq *q, struct buf *out, size_t step)
{
    while (q->n_bytes) {
        struct iovec iov[4];
        size_t n = chunkq_iov(q, iov, ARRAY_LEN(iov)), take = 0;
        assert_true(n > 0);
        for (size_t i = 0; i < n && take < step; i++) {
            assert_true(iov[i].iov_len > 0);
            size_t k = MIN(step - take, iov[i].iov_len);
            buf_add(out, str_n(iov[i].iov_base, k));
            take += k;
        }
        chunkq_drop(q, take);
    }
    struct iovec iov[1];
    assert_int_equal(chunkq_iov(q, iov, 1), 0);
}

static void test_order(void **state)
{
    static const size_t sizes[] = {0, 1, 10, 2000, 5000, 1, 0, 70000, 3};
    for (size_t step = 1; step < 9000; step = step * 3 + 1) {
        struct chunkq q = {0};
        AUTO_BUF want, got;
        buf_init(&want, 1 << 20);
        buf_init(&got, 1 << 20);
        for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
            size_t from = want.n;
            for (size_t k = 0; k < sizes[i]; k++) {
                buf_add_char(&want, (char)(want.n * 7 + i));
            }
            chunkq_add(&q, str_skip(buf_str(&want), from));
            assert_int_equal(q.n_bytes, want.n);
        }
        drain(&q, &got, step);
        assert_true(str_eq(buf_str(&got), buf_str(&want)));
    }
}

static void test_move(void **state)
{
    struct chunkq a = {0}, b = {0};
    chunkq_move(&a, &b);
    assert_int_equal(a.n_bytes, 0);
    chunkq_addc(&b, "one ");
    chunkq_move(&a, &b);
    chunkq_addc(&b, "two ");
    chunkq_move(&a, &b);
    struct iovec iov[4];
    assert_int_equal(chunkq_iov(&a, iov, 4), 1); /* small pieces share a block */
    char big[4000];
    memset(big, 'x', sizeof(big));
    chunkq_add(&b, str_n(big, sizeof(big)));
    chunkq_addc(&b, "end");
    chunkq_move(&a, &b);
    assert_int_equal(b.n_bytes, 0);
    assert_null(b.first);
    chunkq_addc(&a, "!");
    AUTO_BUF got;
    buf_init(&got, 8192);
    drain(&a, &got, 100);
    assert_int_equal(got.n, 8 + sizeof(big) + 4);
    assert_true(str_has_prefixc(buf_str(&got), "one two xxx"));
    assert_true(str_has_suffix(buf_str(&got), STR("xend!")));
}

static void test_done(void **state)
{
    struct chunkq q = {0};
    char big[9000] = {0};
    chunkq_add(&q, str_n(big, sizeof(big)));
    chunkq_addc(&q, "x");
    chunkq_done(&q);
    assert_int_equal(q.n_bytes, 0);
    chunkq_done(&q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_move),
        cmocka_unit_test(test_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

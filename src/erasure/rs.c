#include "erasure/rs.h"

#include <assert.h>
#include <errno.h>
#include <isa-l/erasure_code.h>
#include <string.h>

#define VERIFY_STEP 4096u

struct rs {
    unsigned k, m;
    uint8_t matrix[RS_UNITS_MAX * RS_K_MAX]; /* k + m rows of k */
    uint8_t tables[32 * RS_K_MAX * RS_M_MAX];
};

int rs_new(unsigned k, unsigned m, struct rs **ret, struct err *err)
{
    if (k < 1 || k > RS_K_MAX || m > RS_M_MAX) {
        return fail(err, -EINVAL, "InvalidErasureCode",
                    "RS(%u,%u): data is 1 to %d units, parity 0 to %d", k, m, RS_K_MAX,
                    RS_M_MAX);
    }
    struct rs *rs = calloc(1, sizeof(*rs));
    if (!rs) {
        abort();
    }
    rs->k = k;
    rs->m = m;
    gf_gen_cauchy1_matrix(rs->matrix, (int)(k + m), (int)k);
    if (m > 0) {
        ec_init_tables((int)k, (int)m, rs->matrix + k * k, rs->tables);
    }
    *ret = rs;
    return 0;
}

void rs_free(struct rs *rs)
{
    free(rs);
}

unsigned rs_k(const struct rs *rs)
{
    return rs->k;
}

unsigned rs_m(const struct rs *rs)
{
    return rs->m;
}

uint32_t rs_all(const struct rs *rs)
{
    return (UINT32_C(1) << (rs->k + rs->m)) - 1;
}

/* ISA-L takes tables and pointers without const and changes neither. */
static void run(size_t size, unsigned k, unsigned n_rows, const uint8_t *tables,
                uint8_t *from[], uint8_t *to[])
{
    assert(size <= RS_UNIT_SIZE_MAX);
    if (n_rows == 0 || size == 0) {
        return;
    }
    uint8_t *t = NULL;
    memcpy(&t, &tables, sizeof(t));
    ec_encode_data((int)size, (int)k, (int)n_rows, t, from, to);
}

void rs_encode(const struct rs *rs, size_t size, uint8_t *const units[])
{
    uint8_t *p[RS_UNITS_MAX];
    memcpy(p, units, (rs->k + rs->m) * sizeof(p[0]));
    run(size, rs->k, rs->m, rs->tables, p, p + rs->k);
}

static int check_sets(const struct rs *rs, uint32_t have, uint32_t want, struct err *err)
{
    unsigned n_have = (unsigned)__builtin_popcount(have);
    unsigned n_want = (unsigned)__builtin_popcount(want);
    if (((have | want) & ~rs_all(rs)) || (have & want)) {
        return fail(err, -EINVAL, "InvalidErasureCode",
                    "RS(%u,%u): units %#x are there and %#x wanted", rs->k, rs->m, have, want);
    }
    if (n_have < rs->k) {
        return fail(err, -ENODATA, "TooFewUnits", "%u of %u units are left, %u are needed",
                    n_have, rs->k + rs->m, rs->k);
    }
    assert(n_want <= rs->m); /* as the sets do not meet */
    return 0;
}

int rs_plan_init(struct rs_plan *plan, const struct rs *rs, uint32_t have, uint32_t want,
                 struct err *err)
{
    int r = check_sets(rs, have, want, err);
    if (r < 0) {
        return r;
    }
    unsigned k = rs->k;
    uint8_t seen[RS_K_MAX * RS_K_MAX], inverse[RS_K_MAX * RS_K_MAX];
    uint8_t rows[RS_M_MAX * RS_K_MAX] = {0};
    struct rs_plan p = {.k = k};
    unsigned n_from = 0;
    for (unsigned u = 0; u < k + rs->m; u++) {
        if (((have >> u) & 1) && n_from < k) {
            memcpy(seen + n_from * k, rs->matrix + u * k, k);
            p.from[n_from++] = (uint8_t)u;
        }
        if ((want >> u) & 1) {
            p.to[p.n_want++] = (uint8_t)u;
        }
    }
    if (gf_invert_matrix(seen, inverse, (int)k) != 0) { /* cannot be, with this matrix */
        return fail(err, -EIO, "InvalidErasureCode",
                    "RS(%u,%u): units %#x depend on each other", k, rs->m, have);
    }
    for (unsigned w = 0; w < p.n_want; w++) {
        for (unsigned col = 0; col < k; col++) {
            uint8_t sum = 0;
            for (unsigned i = 0; i < k; i++) {
                sum ^= gf_mul(rs->matrix[p.to[w] * k + i], inverse[i * k + col]);
            }
            rows[w * k + col] = sum;
        }
    }
    if (p.n_want > 0) {
        ec_init_tables((int)k, (int)p.n_want, rows, p.tables);
    }
    *plan = p;
    return 0;
}

uint32_t rs_plan_reads(const struct rs_plan *plan)
{
    uint32_t set = 0;
    for (unsigned i = 0; i < plan->k && plan->n_want > 0; i++) {
        set |= UINT32_C(1) << plan->from[i];
    }
    return set;
}

void rs_plan_run(const struct rs_plan *plan, size_t size, uint8_t *const units[])
{
    uint8_t *from[RS_K_MAX], *to[RS_M_MAX];
    for (unsigned i = 0; i < plan->k; i++) {
        from[i] = units[plan->from[i]];
    }
    for (unsigned i = 0; i < plan->n_want; i++) {
        to[i] = units[plan->to[i]];
    }
    run(size, plan->k, plan->n_want, plan->tables, from, to);
}

int rs_verify(const struct rs *rs, size_t size, const uint8_t *const units[], struct err *err)
{
    uint8_t want[RS_M_MAX][VERIFY_STEP];
    uint8_t *from[RS_K_MAX], *to[RS_M_MAX];
    for (size_t off = 0; off < size; off += VERIFY_STEP) {
        size_t n = MIN((size_t)VERIFY_STEP, size - off);
        for (unsigned i = 0; i < rs->k; i++) {
            const uint8_t *p = units[i] + off;
            memcpy(&from[i], &p, sizeof(p));
        }
        for (unsigned i = 0; i < rs->m; i++) {
            to[i] = want[i];
        }
        run(n, rs->k, rs->m, rs->tables, from, to);
        for (unsigned i = 0; i < rs->m; i++) {
            if (memcmp(want[i], units[rs->k + i] + off, n) != 0) {
                return fail(err, -EBADMSG, "DamagedUnits",
                            "RS(%u,%u): parity %u does not fit the data near byte %zu", rs->k,
                            rs->m, i, off);
            }
        }
    }
    return 0;
}

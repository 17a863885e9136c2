/* Keys, ids, addresses, and every record's table. */
#include "base/test.h"
#include "model/instance.h"
#include "model/keys.h"
#include "model/network.h"
#include "model/node.h"
#include "model/obj.h"
#include "model/volume.h"
#include <errno.h>

static void test_keys(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(10000);
    struct str acc = STR("123456789012");
    assert_str(key_spec(a, "instance", acc, STR("i-1")), "spec/instance/123456789012/i-1");
    assert_str(key_status(a, "eni", acc, STR("eni-1")), "status/eni/123456789012/eni-1");
    assert_str(key_spec_prefix(a, "vpc", acc), "spec/vpc/123456789012/");
    assert_str(key_spec_prefix(a, "vpc", STR_NONE), "spec/vpc/");
    assert_str(key_status_prefix(a, "vpc", STR_NONE), "status/vpc/");
    assert_str(key_claim(a, "ip", STR("subnet-1"), STR("10.0.0.4")),
               "claim/ip/subnet-1/10.0.0.4");
    assert_str(key_claim(a, "publicip", STR("1.2.3.4"), STR_NONE), "claim/publicip/1.2.3.4");

    struct key_parts k;
    assert_int_equal(key_parse(STR("spec/keypair/123456789012/a/b c"), &k), 0);
    assert_str(k.root, "spec");
    assert_str(k.kind, "keypair");
    assert_str(k.account, "123456789012");
    assert_str(k.id, "a/b c");
    static const char *const bad[] = {"",          "spec",   "spec/x",    "spec/x/1",
                                      "spec/x/1/", "/x/1/i", "spec//1/i", "spec/x//i"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(key_parse(str_c(bad[i]), &k), -EINVAL);
    }
    assert_int_equal(key_parse(STR_NONE, &k), -EINVAL);
}

static void test_ids(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(10000);
    struct str id = id_new(a, "vol");
    assert_int_equal(id.n, 4 + 17);
    assert_true(id_is_wellformed(id, "vol"));
    assert_false(str_eq(id, id_new(a, "vol")));
    static const struct {
        const char *id;
        bool is_good;
    } cases[] = {
        {"i-0123456789abcdef0", true},
        {"i-01234567", true},
        {"i-0123456", false},
        {"i-0123456789abcdef", false},
        {"i-0123456789ABCDEF0", false},
        {"i-", false},
        {"i", false},
        {"", false},
        {"vol-01234567", false},
        {"i-0123456g", false},
        {"ii-01234567", false},
        {"i_01234567", false},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        if (id_is_wellformed(str_c(cases[i].id), "i") != cases[i].is_good) {
            fail_msg("%s", cases[i].id);
        }
    }
}

static void test_addresses(void **state)
{
    AUTO(arena_freep) struct arena *a = arena_new(10000);
    static const struct {
        const char *s;
        int r;
        uint32_t ip;
    } ips[] = {
        {"172.31.0.4", 0, 0xac1f0004},
        {"255.255.255.255", 0, 0xffffffff},
        {"0.0.0.0", 0, 0},
        {"1.2.3", -EINVAL, 0},
        {"1.2.3.4.5", -EINVAL, 0},
        {"1.2.3.256", -EINVAL, 0},
        {"1.2.3.04", -EINVAL, 0},
        {"1.2.3.", -EINVAL, 0},
        {" 1.2.3.4", -EINVAL, 0},
        {"1.2.3.4 ", -EINVAL, 0},
        {"", -EINVAL, 0},
        {"1.2.3.-4", -EINVAL, 0},
        {"0x1.2.3.4", -EINVAL, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(ips); i++) {
        uint32_t ip = 0;
        assert_int_equal(ip4_parse(str_c(ips[i].s), &ip), ips[i].r);
        assert_int_equal(ip, ips[i].ip);
        assert_true(ips[i].r < 0 || str_eqc(ip4_fmt(a, ip), ips[i].s));
    }
    static const struct {
        const char *s;
        int r;
        uint32_t net;
        unsigned len;
    } cidrs[] = {
        {"172.31.0.0/16", 0, 0xac1f0000, 16},
        {"0.0.0.0/0", 0, 0, 0},
        {"10.0.0.1/32", 0, 0x0a000001, 32},
        {"172.31.0.1/16", -EINVAL, 0, 0},
        {"1.0.0.0/0", -EINVAL, 0, 0},
        {"10.0.0.0", -EINVAL, 0, 0},
        {"10.0.0.0/", -EINVAL, 0, 0},
        {"10.0.0.0/33", -EINVAL, 0, 0},
        {"10.0.0.0/08", -EINVAL, 0, 0},
        {"10.0.0.0/8/8", -EINVAL, 0, 0},
        {"/8", -EINVAL, 0, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cidrs); i++) {
        uint32_t net = 0;
        unsigned len = 0;
        assert_int_equal(cidr4_parse(str_c(cidrs[i].s), &net, &len), cidrs[i].r);
        assert_int_equal(net, cidrs[i].net);
        assert_int_equal(len, cidrs[i].len);
    }
    uint32_t ip = 0;
    assert_int_equal(ip4_parse(STR_NONE, &ip), -EINVAL);
}

static void test_states(void **state)
{
    static const enum instance_state all[] = {INSTANCE_PENDING,       INSTANCE_RUNNING,
                                              INSTANCE_SHUTTING_DOWN, INSTANCE_TERMINATED,
                                              INSTANCE_STOPPING,      INSTANCE_STOPPED};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        enum instance_state back = 99;
        assert_int_equal(instance_state_parse(str_c(instance_state_name(all[i])), &back), 0);
        assert_int_equal(back, all[i]);
    }
    enum instance_state s;
    assert_int_equal(instance_state_parse(STR("paused"), &s), -EINVAL);
}

/* Gives every member of a record a value of its own, by its table. */
static void fill(const struct rec_desc *d, struct arena *a, void *rec, unsigned *next,
                 unsigned depth)
{
    for (size_t i = 0; i < d->n_fields; i++) {
        void *p = (char *)rec + d->fields[i].off;
        unsigned v = ++*next;
        switch (d->fields[i].type) {
        case REC_STR: *(struct str *)p = arena_fmt(a, "s%u", v); break;
        case REC_U64: *(uint64_t *)p = v; break;
        case REC_I64: *(int64_t *)p = -(int64_t)v; break;
        case REC_BOOL: *(bool *)p = true; break;
        case REC_STR_LIST:
            *(struct str_list *)p =
                (struct str_list){arena_xalloc(a, 2 * sizeof(struct str)), 2};
            ((struct str_list *)p)->v[0] = arena_fmt(a, "l%u", v);
            ((struct str_list *)p)->v[1] = STR("");
            break;
        case REC_OBJ: fill(d->fields[i].sub, a, p, next, depth + 1); break;
        case REC_OBJ_LIST: {
            struct {
                char *v;
                size_t n;
            } *list = p;
            list->n = 2;
            list->v = arena_xalloc(a, 2 * d->fields[i].sub->size);
            fill(d->fields[i].sub, a, list->v, next, depth + 1);
            fill(d->fields[i].sub, a, list->v + d->fields[i].sub->size, next, depth + 1);
            break;
        }
        }
    }
}

static void test_every_record_round_trips(void **state)
{
    static const char *const keys[] = {
        "spec/instance/1/x", "status/instance/1/x",   "spec/image/1/x",
        "status/image/1/x",  "spec/keypair/1/x",      "spec/volume/1/x",
        "status/volume/1/x", "status/attachment/1/x", "spec/snapshot/1/x",
        "spec/vpc/1/x",      "spec/subnet/1/x",       "spec/igw/1/x",
        "spec/rtb/1/x",      "spec/acl/1/x",          "spec/sg/1/x",
        "spec/eni/1/x",      "status/eni/1/x",        "spec/tags/1/x",
        "node/n/facts",      "node/n/awsgw",          "claim/capacity/n",
    };
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
        const struct rec_desc *d = model_desc(str_c(keys[i]));
        if (!d) {
            fail_msg("no table for %s", keys[i]);
        }
        void *rec = arena_xalloc(a, d->size);
        void *back = arena_xalloc(a, d->size);
        unsigned next = 0;
        fill(d, a, rec, &next, 0);
        AUTO_BUF one;
        AUTO_BUF two;
        buf_init(&one, 1 << 16);
        buf_init(&two, 1 << 16);
        assert_int_equal(rec_save(d, rec, &one, NULL), 0);
        assert_int_equal(rec_load(d, a, buf_str(&one), back, NULL), 0);
        assert_int_equal(rec_save(d, back, &two, NULL), 0);
        assert_string_equal(buf_cstr(&one), buf_cstr(&two));
        /* A field that the table forgot would leave a hole of zeros. */
        size_t n_zero = 0;
        const char *bytes = back;
        for (size_t k = sizeof(struct rec_head); k + 8 <= d->size; k += 8) {
            uint64_t word = 0;
            memcpy(&word, bytes + k, 8);
            n_zero += word == 0;
        }
        if (n_zero > 0) {
            fail_msg("%s: %zu words are not filled", d->name, n_zero);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_every_record_round_trips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

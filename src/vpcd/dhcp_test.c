#include "vpcd/dhcp.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define IP(a, b, c, d) \
    ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (uint32_t)(d))
#define ME    IP(172, 31, 0, 10)
#define GW    IP(172, 31, 0, 1)
#define OTHER IP(172, 31, 0, 99)

static const struct dhcp_lease lease = {
    .mac = {0x0a, 0, 0, 0, 0, 1},
    .ip = ME,
    .gateway = GW,
    .dns = IP(172, 31, 0, 2),
    .prefix_len = 20,
    .mtu = 9001,
    .lease_s = 3600,
    .host_name = {"ip-172-31-0-10", 14},
    .domain = {"r.compute.internal", 18},
};

struct msg {
    uint8_t p[600];
    size_t n;
};

static void put32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) {
        p[i] = (uint8_t)(v >> (24 - 8 * i));
    }
}

static struct msg make(uint8_t type, uint32_t ciaddr, uint32_t want, uint32_t server)
{
    struct msg m = {.n = 240};
    m.p[0] = 1;
    m.p[1] = 1;
    m.p[2] = 6;
    memcpy(m.p + 4, "XID!", 4);
    put32(m.p + 12, ciaddr);
    memcpy(m.p + 28, lease.mac, 6);
    put32(m.p + 236, 0x63825363);
    m.p[m.n++] = 53;
    m.p[m.n++] = 1;
    m.p[m.n++] = type;
    for (int i = 0; i < 2; i++) {
        uint32_t v = i ? server : want;
        if (v) {
            m.p[m.n++] = i ? 54 : 50;
            m.p[m.n++] = 4;
            put32(m.p + m.n, v);
            m.n += 4;
        }
    }
    m.p[m.n++] = 255;
    return m;
}

static const uint8_t *option(const struct dhcp_reply *r, uint8_t code, size_t *n)
{
    for (size_t i = 240; i + 1 < r->n && r->p[i] != 255;) {
        if (r->p[i] == 0) {
            i++;
            continue;
        }
        if (r->p[i] == code) {
            *n = r->p[i + 1];
            return r->p + i + 2;
        }
        i += 2u + r->p[i + 1];
    }
    *n = 0;
    return NULL;
}

static int type_of(const struct dhcp_reply *r)
{
    size_t n;
    const uint8_t *p = option(r, 53, &n);
    return p && n == 1 ? *p : -1;
}

enum { NONE = 0, OFFER = 2, ACK = 5, NAK = 6 };

static void test_answers(void **state)
{
    static const struct {
        const char *name;
        uint8_t type;
        uint32_t ciaddr, want, server;
        int answer;
    } cases[] = {
        {"discover", 1, 0, 0, 0, OFFER},
        {"discover with a wish", 1, 0, OTHER, 0, OFFER},
        {"selecting", 3, 0, ME, GW, ACK},
        {"selecting another address", 3, 0, OTHER, GW, NAK},
        {"selecting without an address", 3, 0, 0, GW, NAK},
        {"selecting another server", 3, 0, ME, OTHER, NONE},
        {"init-reboot", 3, 0, ME, 0, ACK},
        {"init-reboot elsewhere", 3, 0, OTHER, 0, NAK},
        {"renewing", 3, ME, 0, 0, ACK},
        {"renewing another address", 3, OTHER, 0, 0, NAK},
        {"request of nothing", 3, 0, 0, 0, NAK},
        {"inform", 8, ME, 0, 0, ACK},
        {"inform from another address", 8, OTHER, 0, 0, NONE},
        {"decline", 4, 0, ME, GW, NONE},
        {"release", 7, ME, 0, GW, NONE},
        {"an offer", 2, 0, 0, 0, NONE},
        {"no such type", 99, 0, 0, 0, NONE},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct msg m = make(cases[i].type, cases[i].ciaddr, cases[i].want, cases[i].server);
        struct dhcp_reply r;
        int got = dhcp_answer(str_n((const char *)m.p, m.n), &lease, &r) == DHCP_SEND
                      ? type_of(&r)
                      : NONE;
        if (got != cases[i].answer) {
            fail_msg("%s: %d, not %d", cases[i].name, got, cases[i].answer);
        }
        if (got) {
            assert_int_equal(r.p[0], 2);
            assert_memory_equal(r.p + 4, "XID!", 4);
            assert_memory_equal(r.p + 28, lease.mac, 6);
            assert_true(r.n >= 300 && r.n <= DHCP_MAX_SIZE);
        }
        if (got == NAK) {
            size_t n;
            assert_int_equal(r.to, UINT32_MAX);
            assert_null(option(&r, 51, &n));
            assert_null(option(&r, 3, &n));
        }
    }
}

static void test_the_lease_is_complete(void **state)
{
    struct msg m = make(3, 0, ME, GW);
    struct dhcp_reply r;
    assert_int_equal(dhcp_answer(str_n((const char *)m.p, m.n), &lease, &r), DHCP_SEND);
    static const struct {
        uint8_t code, n;
        const char *value;
    } want[] = {
        {1, 4, "\xff\xff\xf0\x00"},     {3, 4, "\xac\x1f\x00\x01"},
        {6, 4, "\xac\x1f\x00\x02"},     {12, 14, "ip-172-31-0-10"},
        {15, 18, "r.compute.internal"}, {26, 2, "\x23\x29"},
        {51, 4, "\x00\x00\x0e\x10"},    {54, 4, "\xac\x1f\x00\x01"},
        {58, 4, "\x00\x00\x07\x08"},    {59, 4, "\x00\x00\x0c\x4e"},
    };
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        size_t n;
        const uint8_t *p = option(&r, want[i].code, &n);
        if (!p || n != want[i].n || memcmp(p, want[i].value, n) != 0) {
            fail_msg("option %d", want[i].code);
        }
    }
    assert_memory_equal(r.p + 16, "\xac\x1f\x00\x0a", 4); /* yiaddr */
    assert_int_equal(r.to, ME);
    m.p[10] = 0x80; /* the broadcast flag */
    assert_int_equal(dhcp_answer(str_n((const char *)m.p, m.n), &lease, &r), DHCP_SEND);
    assert_int_equal(r.to, UINT32_MAX);
}

static void test_inform_has_no_lease(void **state)
{
    struct msg m = make(8, ME, 0, 0);
    struct dhcp_reply r;
    size_t n;
    assert_int_equal(dhcp_answer(str_n((const char *)m.p, m.n), &lease, &r), DHCP_SEND);
    assert_memory_equal(r.p + 16, "\0\0\0\0", 4);
    assert_null(option(&r, 51, &n));
    assert_non_null(option(&r, 6, &n));
    assert_int_equal(r.to, ME);
}

static void test_what_is_not_for_us_is_ignored(void **state)
{
    static const struct {
        const char *name;
        size_t off;
        uint8_t value;
    } cases[] = {
        {"a reply", 0, 2},  {"not Ethernet", 1, 6}, {"hardware length", 2, 16},
        {"a relay", 27, 1}, {"another MAC", 33, 9}, {"no magic", 236, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct msg m = make(1, 0, 0, 0);
        struct dhcp_reply r;
        m.p[cases[i].off] = cases[i].value;
        if (dhcp_answer(str_n((const char *)m.p, m.n), &lease, &r) != DHCP_IGNORE) {
            fail_msg("%s was answered", cases[i].name);
        }
    }
    /* cut anywhere before its end: options that run past the end are refused */
    struct msg m = make(3, 0, ME, GW);
    for (size_t n = 0; n < 243; n++) {
        struct dhcp_reply r;
        assert_int_equal(dhcp_answer(str_n((const char *)m.p, n), &lease, &r), DHCP_IGNORE);
    }
}

static void test_options_in_the_other_fields(void **state)
{
    struct msg m = make(3, 0, 0, 0);
    struct dhcp_reply r;
    static const uint8_t overload[] = {52, 1, 3, 255};
    memcpy(m.p + 243, overload, sizeof(overload));
    m.n = 247;
    static const uint8_t in_file[] = {50, 4, 172, 31, 0, 10, 255},
                         in_sname[] = {54, 4, 172, 31, 0, 1, 255};
    memcpy(m.p + 108, in_file, sizeof(in_file));
    memcpy(m.p + 44, in_sname, sizeof(in_sname));
    assert_int_equal(dhcp_answer(str_n((const char *)m.p, m.n), &lease, &r), DHCP_SEND);
    assert_int_equal(type_of(&r), ACK);
}

static void test_a_long_client_id_comes_back(void **state)
{
    struct msg m = make(1, 0, 0, 0);
    m.n--; /* the end mark */
    m.p[m.n++] = 61;
    m.p[m.n++] = 150;
    memset(m.p + m.n, 'c', 150);
    m.n += 150;
    struct dhcp_lease l = lease;
    char long_name[255];
    memset(long_name, 'n', sizeof(long_name));
    l.host_name = l.domain = str_n(long_name, sizeof(long_name)); /* together more than fits */
    struct dhcp_reply r;
    assert_int_equal(dhcp_answer(str_n((const char *)m.p, m.n), &l, &r), DHCP_SEND);
    assert_true(r.n <= DHCP_MAX_SIZE);
    assert_int_equal(type_of(&r), OFFER);
    assert_int_equal(dhcp_answer(str_n((const char *)m.p, m.n), &lease, &r), DHCP_SEND);
    size_t n;
    assert_non_null(option(&r, 61, &n));
    assert_int_equal(n, 150);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_the_lease_is_complete),
        cmocka_unit_test(test_inform_has_no_lease),
        cmocka_unit_test(test_what_is_not_for_us_is_ignored),
        cmocka_unit_test(test_options_in_the_other_fields),
        cmocka_unit_test(test_a_long_client_id_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "vpcd/dns.h"

#include "vpcd/facts_sample.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

struct msg {
    uint8_t p[1024];
    size_t n;
};

static void put16(uint8_t *p, unsigned v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

static unsigned get16(const uint8_t *p)
{
    return (unsigned)p[0] << 8 | p[1];
}

static struct str as_str(const struct msg *m)
{
    return str_n((const char *)m->p, m->n);
}

/* A question; 'edns' > 0 adds OPT. */
static struct msg ask(const char *name, unsigned type, unsigned edns)
{
    struct msg m = {.n = 12};
    put16(m.p, 0x1234);
    put16(m.p + 2, 0x0100);
    put16(m.p + 4, 1);
    struct str rest = str_c(name), label;
    while (*name && str_next(&rest, '.', &label)) {
        m.p[m.n++] = (uint8_t)label.n;
        memcpy(m.p + m.n, label.p, label.n);
        m.n += label.n;
    }
    m.p[m.n++] = 0;
    put16(m.p + m.n, type);
    put16(m.p + m.n + 2, 1);
    m.n += 4;
    if (edns) {
        put16(m.p + 10, 1);
        memset(m.p + m.n, 0, 11);
        put16(m.p + m.n + 1, 41);
        put16(m.p + m.n + 3, edns);
        m.n += 11;
    }
    return m;
}

#define ZONE "ap-southeast-2.compute.internal"

static void test_our_names(void **state)
{
    static const struct {
        const char *name;
        unsigned type;
        int rcode, n_answers, n_authority; /* rcode -1: not ours */
        const char *data;
        size_t n;
    } cases[] = {
        {"ip-172-31-0-10." ZONE, DNS_A, 0, 1, 0, "\xac\x1f\x00\x0a", 4},
        {"IP-172-31-0-10.AP-southeast-2.compute.INTERNAL", DNS_A, 0, 1, 0, "\xac\x1f\x00\x0a",
         4},
        {"ip-172-31-0-10." ZONE, DNS_ANY, 0, 1, 0, "\xac\x1f\x00\x0a", 4},
        {"ip-172-31-0-10." ZONE, DNS_AAAA, 0, 0, 1, NULL, 0},
        {"ip-172-31-0-77." ZONE, DNS_A, 3, 0, 1, NULL, 0},
        {"ip-172-31-0-10x." ZONE, DNS_A, 3, 0, 1, NULL, 0},
        {"ip-172-31-0." ZONE, DNS_A, 3, 0, 1, NULL, 0},
        {"ip-172-31-0-999." ZONE, DNS_A, 3, 0, 1, NULL, 0},
        {"nobody." ZONE, DNS_A, 3, 0, 1, NULL, 0},
        {ZONE, DNS_A, 0, 0, 1, NULL, 0},
        {"x" ZONE, DNS_A, -1, 0, 0, NULL, 0},
        {"ec2-198-51-100-10." ZONE, DNS_A, 0, 1, 0, "\xac\x1f\x00\x0a",
         4}, /* private, inside */
        {"ec2-198-51-100-20." ZONE, DNS_A, 0, 1, 0, "\xc6\x33\x64\x14", 4}, /* another VPC's */
        {"ec2-198-51-100-251." ZONE, DNS_A, 3, 0, 1, NULL, 0},              /* past the pool */
        {"10.0.31.172.in-addr.arpa", DNS_PTR, 0, 1, 0,
         "\x0eip-172-31-0-10\x0e"
         "ap-southeast-2\x07"
         "compute\x08"
         "internal\0",
         48},
        {"10.100.51.198.in-addr.arpa", DNS_PTR, 0, 1, 0,
         "\x11"
         "ec2-198-51-100-10\x0e"
         "ap-southeast-2\x07"
         "compute\x08"
         "internal\0",
         51},
        {"77.0.31.172.in-addr.arpa", DNS_PTR, 3, 0, 1, NULL, 0},
        {"10.0.31.172.in-addr.arpa", DNS_A, 0, 0, 1, NULL, 0},
        {"8.8.8.8.in-addr.arpa", DNS_PTR, -1, 0, 0, NULL, 0},
        {"0.31.172.in-addr.arpa", DNS_PTR, -1, 0, 0, NULL, 0},
        {"www.example.com", DNS_A, -1, 0, 0, NULL, 0},
        {"", DNS_A, -1, 0, 0, NULL, 0},
    };
    AUTO(facts_freep) struct facts *f = facts_sample();
    for (size_t i = 0; i < 2 * ARRAY_LEN(cases); i++) {
        size_t k = i / 2;
        struct msg m = ask(cases[k].name, cases[k].type, i % 2 ? 4096 : 0);
        struct dns_query q;
        uint8_t out[1500];
        assert_int_equal(dns_parse_query(as_str(&m), &q), 0);
        size_t n = dns_answer_local(as_str(&m), &q, f, out, sizeof(out));
        if ((n == 0) != (cases[k].rcode < 0)) {
            fail_msg("%s: %zu bytes", cases[k].name, n);
        }
        if (n == 0) {
            continue;
        }
        assert_int_equal(get16(out), 0x1234);
        if ((out[3] & 15) != cases[k].rcode || (int)get16(out + 6) != cases[k].n_answers ||
            (int)get16(out + 8) != cases[k].n_authority || get16(out + 10) != i % 2) {
            fail_msg("%s: rcode %d, %u answers, %u authority", cases[k].name, out[3] & 15,
                     get16(out + 6), get16(out + 8));
        }
        if (cases[k].data) {
            const uint8_t *rr = out + q.question_end;
            assert_int_equal(get16(rr + 10), cases[k].n);
            assert_memory_equal(rr + 12, cases[k].data, cases[k].n);
        }
        /* the same into every smaller buffer: whole or not at all */
        for (size_t size = 0; size < n; size++) {
            assert_true(dns_answer_local(as_str(&m), &q, f, out, size) <= size);
        }
    }
}

static void test_questions(void **state)
{
    struct dns_query q;
    struct msg good = ask("Www.Example.com", DNS_A, 1400);
    assert_int_equal(dns_parse_query(as_str(&good), &q), 0);
    assert_string_equal(q.name, "www.example.com");
    assert_true(q.has_edns && q.udp_size == 1400 && q.is_recursion_desired);
    struct msg small = ask("a.b", DNS_A, 100); /* less than the least is the least */
    assert_int_equal(dns_parse_query(as_str(&small), &q), 0);
    assert_int_equal(q.udp_size, 512);
    for (size_t n = 0; n < good.n; n++) {
        assert_int_not_equal(dns_parse_query(str_n((const char *)good.p, n), &q), 0);
    }
    struct {
        const char *name;
        size_t off;
        uint8_t value;
        int want;
    } cases[] = {
        {"an answer", 2, 0x81, -EINVAL},
        {"an update", 2, 0x28, DNS_NOTIMP},
        {"no question", 5, 0, DNS_FORMERR},
        {"two questions", 5, 2, DNS_FORMERR},
        {"an answer section", 7, 1, DNS_FORMERR},
        {"a pointer in the question", 12, 0xc0, DNS_FORMERR},
        {"a label past the end", 12, 63, DNS_FORMERR},
        {"more records than there are", 11, 4, DNS_FORMERR},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct msg m = good;
        m.p[cases[i].off] = cases[i].value;
        int r = dns_parse_query(as_str(&m), &q);
        if (r != cases[i].want) {
            fail_msg("%s: %d", cases[i].name, r);
        }
        if (r > 0) {
            uint8_t out[512];
            size_t n = dns_make_error(as_str(&m), &q, r, out, sizeof(out));
            assert_true(n >= 12);
            assert_int_equal(out[3] & 15, r);
        }
    }
    /* a name of more than 255 bytes */
    struct msg m = {.n = 12};
    put16(m.p + 4, 1);
    for (int i = 0; i < 5; i++) {
        m.p[m.n] = 60;
        memset(m.p + m.n + 1, 'a', 60);
        m.n += 61;
    }
    m.n += 5;
    assert_int_equal(dns_parse_query(as_str(&m), &q), DNS_FORMERR);
}

static struct msg answer_of(const struct msg *question, unsigned n_records, bool has_opt)
{
    struct msg m = *question;
    m.p[2] |= 0x80;
    put16(m.p + 6, n_records);
    for (unsigned i = 0; i < n_records; i++) {
        memcpy(m.p + m.n, "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\x01\x02\x03\x04",
               16);
        m.n += 16;
    }
    if (has_opt) {
        memcpy(m.p + m.n, "\0\x00\x29\x10\x00\x00\x00\x00\x00\x00\x00", 11);
        m.n += 11;
    }
    put16(m.p + 10, has_opt);
    return m;
}

static void test_forwarding(void **state)
{
    struct dns_query plain, edns;
    struct msg q1 = ask("www.example.com", DNS_A, 0), q2 = ask("www.example.com", DNS_A, 1400);
    assert_int_equal(dns_parse_query(as_str(&q1), &plain), 0);
    assert_int_equal(dns_parse_query(as_str(&q2), &edns), 0);
    struct msg sent = {.n = 0};
    sent.n = dns_make_upstream(as_str(&q1), &plain, 0xbeef, sent.p, sizeof(sent.p));
    assert_int_equal(get16(sent.p), 0xbeef);
    assert_int_equal(get16(sent.p + 10), 1); /* EDNS, whatever the client sent */
    struct msg bare = sent;
    bare.n -= 11;
    put16(bare.p + 10, 0);
    struct msg a = answer_of(&bare, 1, true);
    assert_true(dns_is_answer_to(as_str(&a), as_str(&sent)));
    static const struct {
        const char *name;
        size_t off;
        uint8_t flip;
    } wrong[] = {{"another id", 0, 1},
                 {"a question", 2, 0x80},
                 {"another name", 14, 1},
                 {"another type", 30, 1},
                 {"no question", 5, 1}};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct msg b = a;
        b.p[wrong[i].off] ^= wrong[i].flip;
        if (dns_is_answer_to(as_str(&b), as_str(&sent))) {
            fail_msg("%s was taken for the answer", wrong[i].name);
        }
    }
    a.p[13] ^= 0x20; /* case differs: the same name */
    assert_true(dns_is_answer_to(as_str(&a), as_str(&sent)));
    uint8_t out[2048];
    size_t n = dns_make_relayed(as_str(&a), &plain, 512, out);
    assert_int_equal(n, a.n - 11); /* it sent no OPT */
    assert_int_equal(get16(out), 0x1234);
    assert_int_equal(get16(out + 10), 0);
    assert_int_equal(dns_make_relayed(as_str(&a), &edns, 1400, out), a.n);
    struct msg big = answer_of(&bare, 40, true);
    n = dns_make_relayed(as_str(&big), &plain, 512, out);
    assert_int_equal(n, bare.n);
    assert_true(out[2] & 2); /* TC */
    assert_int_equal(get16(out + 6), 0);
    assert_int_equal(dns_make_relayed(as_str(&big), &plain, 65535, out), big.n - 11);
    for (size_t cut = 0; cut < a.n; cut++) { /* cut anywhere: refused */
        assert_int_equal(dns_make_relayed(str_n((const char *)a.p, cut), &plain, 512, out), 0);
    }
}

static void test_facts_follow_changes(void **state)
{
    AUTO(facts_freep) struct facts *f = facts_sample();
    assert_int_equal(facts_n_enis(f), 2);
    assert_true(str_eqc(facts_eni_by_ifindex(f, 7)->id, "eni-0a"));
    assert_true(str_eqc(facts_eni_by_public_ip(f, 0xc633640a)->id, "eni-0a"));
    /* the public address moves: the new owner first, then the old one without it */
    const char *b = "{\"v\":1,\"id\":\"eni-0b\",\"ip\":\"172.31.0.11\",\"public_ip\":\"198.51."
                    "100.10\",\"ifindex\":8}";
    const char *a =
        "{\"v\":1,\"id\":\"eni-0a\",\"ip\":\"172.31.0.10\",\"public_ip\":\"\",\"ifindex\":7}";
    assert_int_equal(facts_set_eni(f, str_c(b), NULL), 0);
    assert_int_equal(facts_set_eni(f, str_c(a), NULL), 0);
    assert_true(str_eqc(facts_eni_by_public_ip(f, 0xc633640a)->id, "eni-0b"));
    /* a full copy without one of them */
    facts_sync_begin(f);
    assert_int_equal(facts_set_eni(f, str_c(a), NULL), 0);
    facts_sync_end(f);
    assert_int_equal(facts_n_enis(f), 1);
    assert_null(facts_eni_by_ip(f, 0xac1f000b));
    assert_null(facts_eni_by_public_ip(f, 0xc633640a));
    facts_del_eni(f, STR("eni-0a"));
    facts_del_eni(f, STR("eni-0a"));
    assert_int_equal(facts_n_enis(f), 0);
    /* what is not right changes nothing */
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "{\"v\":1}",
        "{\"v\":1,\"id\":\"eni-0c\",\"ip\":\"1.2.3\"}",
        "{\"v\":1,\"id\":\"eni-0c\",\"ip\":\"1.2.3.4\",\"public_ip\":\"x\"}"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(facts_set_eni(f, str_c(bad[i]), NULL), -EINVAL);
    }
    assert_int_equal(facts_n_enis(f), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_our_names),
        cmocka_unit_test(test_questions),
        cmocka_unit_test(test_forwarding),
        cmocka_unit_test(test_facts_follow_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#include "vpcd/imds.h"

#include "base/time.h"
#include "codec/json.h"
#include "vpcd/facts_sample.h"
#include "vpcd/imds_token.h"
#include "vpcd/imds_tree.h"
#include "vpcd/ntp.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define NOW (1796050150 * NS_PER_S)

struct world {
    struct facts *f;
    struct arena *a;
    struct str token; /* of i-0a */
};

static const struct fact_eni *eni(const struct world *w, char which)
{
    return facts_eni_by_ip(w->f, which == 'a' ? 0xac1f000a : 0xac1f000b);
}

static struct imds_answer request(const struct world *w, char who, struct imds_request r)
{
    struct imds_answer out;
    r.now_ns = r.now_ns ? r.now_ns : NOW;
    imds_answer(w->f, eni(w, who), &r, w->a, &out);
    return out;
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));
    w->f = facts_sample();
    w->a = arena_new(16u << 20);
    struct imds_answer t =
        request(w, 'a',
                (struct imds_request){
                    .method = STR("PUT"), .path = STR("/latest/api/token"), .ttl = STR("60")});
    assert_int_equal(t.status, 200);
    w->token = t.body;
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    facts_free(w->f);
    arena_free(w->a);
    free(w);
    return 0;
}

static void test_who_gets_what(void **state)
{
    struct world *w = *state;
    struct str tok = w->token, none = STR_NONE;
    struct str wrong = arena_str_dup(w->a, tok);
    ((char *)(uintptr_t)wrong.p)[20] ^= 1;
    struct {
        const char *name, *method, *path;
        char who;
        struct str token, ttl;
        bool is_forwarded;
        int status;
        const char *body; /* NULL = do not look */
    } cases[] = {
        {"with a token", "GET", "/latest/meta-data/instance-id", 'a', tok, none, false, 200,
         "i-0a"},
        {"HEAD", "HEAD", "/latest/meta-data/instance-id", 'a', tok, none, false, 200, NULL},
        {"without", "GET", "/latest/meta-data/instance-id", 'a', none, none, false, 401, NULL},
        {"with an empty one", "GET", "/latest/meta-data/instance-id", 'a', STR(""), none, false,
         401, NULL},
        {"with one that was changed", "GET", "/latest/meta-data/instance-id", 'a', wrong, none,
         false, 401, NULL},
        {"with another instance's", "GET", "/latest/meta-data/instance-id", 'b', tok, none,
         false, 401, NULL},
        {"v1 where it is allowed", "GET", "/latest/meta-data/instance-id", 'b', none, none,
         false, 200, "i-0b"},
        {"a final slash", "GET", "/latest/meta-data/instance-id/", 'a', tok, none, false, 200,
         "i-0a"},
        {"an old version", "GET", "/2009-04-04/meta-data/instance-id", 'a', tok, none, false,
         200, "i-0a"},
        {"no such version", "GET", "/2030-01-01/meta-data/instance-id", 'a', tok, none, false,
         404, NULL},
        {"no such name", "GET", "/latest/meta-data/instance", 'a', tok, none, false, 404, NULL},
        {"below a leaf", "GET", "/latest/meta-data/instance-id/x", 'a', tok, none, false, 404,
         NULL},
        {"nothing at all", "GET", "/latest/dynamic/instance-identity/pkcs7", 'a', tok, none,
         false, 404, NULL},
        {"no user data", "GET", "/latest/user-data", 'b', none, none, false, 404, NULL},
        {"user data", "GET", "/latest/user-data", 'a', tok, none, false, 200, "hi\n"},
        {"the top", "GET", "/latest/", 'a', tok, none, false, 200,
         "dynamic\nmeta-data\nuser-data"},
        {"identity", "GET", "/latest/dynamic/", 'a', tok, none, false, 200,
         "instance-identity/"},
        {"keys", "GET", "/latest/meta-data/public-keys/", 'a', tok, none, false, 200, "0=me"},
        {"key", "GET", "/latest/meta-data/public-keys/0/", 'a', tok, none, false, 200,
         "openssh-key"},
        {"quoted", "GET", "/latest/meta%2ddata/instance-id", 'a', tok, none, false, 200,
         "i-0a"},
        {"badly quoted", "GET", "/latest/meta-data/%zz", 'a', tok, none, false, 400, NULL},
        {"dots", "GET", "/latest/meta-data/../user-data", 'a', tok, none, false, 404, NULL},
        {"tags", "GET", "/latest/meta-data/tags/instance/", 'a', tok, none, false, 200, "Name"},
        {"no tags", "GET", "/latest/meta-data/tags/instance/", 'b', none, none, false, 404,
         NULL},
        {"POST", "POST", "/latest/meta-data/", 'a', tok, none, false, 405, NULL},
        {"PUT elsewhere", "PUT", "/latest/meta-data/", 'a', tok, STR("60"), false, 405, NULL},
        {"GET of a token", "GET", "/latest/api/token", 'a', tok, STR("60"), false, 405, NULL},
        {"a token", "PUT", "/latest/api/token", 'a', none, STR("1"), false, 200, NULL},
        {"the longest", "PUT", "/latest/api/token", 'a', none, STR("21600"), false, 200, NULL},
        {"too long", "PUT", "/latest/api/token", 'a', none, STR("21601"), false, 400, NULL},
        {"no time", "PUT", "/latest/api/token", 'a', none, STR("0"), false, 400, NULL},
        {"not a number", "PUT", "/latest/api/token", 'a', none, STR("1s"), false, 400, NULL},
        {"no header", "PUT", "/latest/api/token", 'a', none, none, false, 400, NULL},
        {"through a proxy", "PUT", "/latest/api/token", 'a', none, STR("60"), true, 403, NULL},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct imds_answer r =
            request(w, cases[i].who,
                    (struct imds_request){.method = str_c(cases[i].method),
                                          .path = str_c(cases[i].path),
                                          .token = cases[i].token,
                                          .ttl = cases[i].ttl,
                                          .is_forwarded = cases[i].is_forwarded});
        if (r.status != cases[i].status || (cases[i].body && !str_eqc(r.body, cases[i].body))) {
            fail_msg("%s: %d \"%.*s\"", cases[i].name, r.status, STR_ARG(r.body));
        }
        assert_true(r.is_hop_limited ==
                    (str_eqc(STR("PUT"), cases[i].method) && r.status == 200));
        if (r.status >= 400) {
            assert_true(str_find_str(r.body, STR("<h1>")) > 0);
        }
    }
}

/* Walks everything that is listed: each name must answer. Returns the number of leaves. */
static int crawl(const struct world *w, char who, struct str folder)
{
    struct imds_answer r = request(
        w, who,
        (struct imds_request){
            .method = STR("GET"), .path = folder, .token = who == 'a' ? w->token : STR_NONE});
    assert_int_equal(r.status, 200);
    int n = 0;
    struct str rest = r.body, name;
    while (str_next(&rest, '\n', &name)) {
        if (str_has_suffix(folder, STR("/public-keys/"))) {
            name = arena_fmt(w->a, "%.*s/", STR_ARG(str_cut(name, '=')));
        }
        struct str path = arena_fmt(w->a, "%.*s%.*s", STR_ARG(folder), STR_ARG(name));
        assert_true(name.n > 0);
        if (name.p[name.n - 1] == '/') {
            n += crawl(w, who, path);
            continue;
        }
        r = request(w, who,
                    (struct imds_request){.method = STR("GET"),
                                          .path = path,
                                          .token = who == 'a' ? w->token : STR_NONE});
        if (r.status != 200) {
            fail_msg("%.*s is listed and answers %d", STR_ARG(path), r.status);
        }
        n++;
    }
    return n;
}

static void test_every_listed_name_answers(void **state)
{
    struct world *w = *state;
    assert_true(crawl(w, 'a', STR("/latest/meta-data/")) > 40);
    assert_int_equal(crawl(w, 'a', STR("/2021-03-23/dynamic/")), 1);
    assert_true(crawl(w, 'b', STR("/latest/meta-data/")) >
                25); /* little is known of it: less is listed */
}

static void test_the_document_is_json(void **state)
{
    struct world *w = *state;
    struct imds_answer r =
        request(w, 'a',
                (struct imds_request){.method = STR("GET"),
                                      .path = STR("/latest/dynamic/instance-identity/document"),
                                      .token = w->token});
    AUTO(json_freep) struct json *j = NULL;
    assert_int_equal(json_parse(r.body, &j, NULL), 0);
    assert_true(str_eqc(json_get_str(j, "instanceId"), "i-0a"));
    assert_true(str_eqc(json_get_str(j, "accountId"), "111122223333"));
    assert_true(str_eqc(json_get_str(j, "pendingTime"), "2026-11-30T14:49:10Z"));
    assert_int_equal(json_type(json_get(j, "kernelId")), JSON_T_NULL);
}

static void test_tokens_end(void **state)
{
    struct world *w = *state;
    struct imds_request r = {
        .method = STR("GET"), .path = STR("/latest/meta-data/"), .token = w->token};
    r.now_ns = NOW + 59 * NS_PER_S;
    assert_int_equal(request(w, 'a', r).status, 200);
    r.now_ns = NOW + 60 * NS_PER_S;
    assert_int_equal(request(w, 'a', r).status, 401);
    r.now_ns = NOW - 86400 * NS_PER_S; /* the clock was set back */
    assert_int_equal(request(w, 'a', r).status, 401);
    struct str key = STR("k"), other = STR("K");
    struct str t = imds_token_make(w->a, key, STR("vpc-1"), STR("i-1"), NOW, 100);
    assert_int_equal(imds_token_check(t, key, STR("vpc-1"), STR("i-1"), NOW), 100);
    assert_int_equal(imds_token_check(t, other, STR("vpc-1"), STR("i-1"), NOW), 0);
    assert_int_equal(imds_token_check(t, key, STR("vpc-2"), STR("i-1"), NOW), 0);
    assert_int_equal(imds_token_check(t, key, STR("vpc-1"), STR("i-2"), NOW), 0);
    assert_int_equal(imds_token_check(t, key, STR("vpc-1/i"), STR("-1"), NOW), 0);
    assert_false(str_eq(t, imds_token_make(w->a, key, STR("vpc-1"), STR("i-1"), NOW, 100)));
    for (size_t i = 0; i < t.n; i++) { /* no byte may differ */
        struct str c = arena_str_dup(w->a, t);
        ((char *)(uintptr_t)c.p)[i] = c.p[i] == 'A' ? 'B' : 'A';
        assert_int_equal(imds_token_check(c, key, STR("vpc-1"), STR("i-1"), NOW), 0);
        assert_int_equal(imds_token_check(str_n(t.p, i), key, STR("vpc-1"), STR("i-1"), NOW),
                         0);
    }
}

static void test_a_disabled_endpoint_says_nothing(void **state)
{
    struct world *w = *state;
    assert_int_equal(facts_set_eni(w->f,
                                   STR("{\"v\":1,\"id\":\"eni-0b\",\"ip\":\"172.31.0.11\","
                                       "\"inst\":{\"id\":\"i-0b\",\"http_tokens\":"
                                       "\"optional\",\"http_endpoint\":\"disabled\"}}"),
                                   NULL),
                     0);
    assert_int_equal(
        request(w, 'b',
                (struct imds_request){.method = STR("GET"), .path = STR("/latest/meta-data/")})
            .status,
        403);
    assert_int_equal(request(w, 'b',
                             (struct imds_request){.method = STR("PUT"),
                                                   .path = STR("/latest/api/token"),
                                                   .ttl = STR("9")})
                         .status,
                     403);
    /* an interface on no instance has nothing to tell */
    assert_int_equal(
        facts_set_eni(w->f, STR("{\"v\":1,\"id\":\"eni-0b\",\"ip\":\"172.31.0.11\"}"), NULL),
        0);
    assert_int_equal(
        request(w, 'b',
                (struct imds_request){.method = STR("GET"), .path = STR("/latest/meta-data/")})
            .status,
        404);
}

static void test_two_interfaces(void **state)
{
    struct world *w = *state;
    assert_int_equal(
        facts_set_eni(w->f,
                      STR("{\"v\":1,\"id\":\"eni-0c\",\"mac\":\"0a:00:00:00:00:0c\",\"ip\":"
                          "\"172.31.0.12\",\"device_index\":1,"
                          "\"inst\":{\"id\":\"i-0b\",\"http_tokens\":\"optional\"}}"),
                      NULL),
        0);
    struct imds_answer r = request(
        w, 'b',
        (struct imds_request){.method = STR("GET"),
                              .path = STR("/latest/meta-data/network/interfaces/macs/")});
    if (!str_eqc(r.body, "0a:00:00:00:00:0b/\n0a:00:00:00:00:0c/")) {
        fail_msg("%d %.*s", r.status, STR_ARG(r.body));
    }
    const struct fact_eni *second = facts_eni_by_ip(w->f, 0xac1f000c);
    struct imds_answer out;
    const struct imds_request q = {
        .method = STR("GET"), .path = STR("/latest/meta-data/local-ipv4"), .now_ns = NOW};
    imds_answer(w->f, second, &q, w->a,
                &out); /* asked through the second one: still the first one's */
    assert_true(str_eqc(out.body, "172.31.0.11"));
}

static void test_ntp(void **state)
{
    uint8_t q[NTP_SIZE] = {0x23}, out[NTP_SIZE];
    memcpy(q + 40, "ORIGIN!!", 8);
    struct ntp_clock c = {.received_ns = NOW + NS_PER_S / 2,
                          .now_ns = NOW + NS_PER_S / 2 + 5000,
                          .is_synchronised = true};
    assert_true(ntp_answer(str_n((const char *)q, sizeof(q)), &c, out));
    assert_int_equal(out[0], 0x24);
    assert_int_equal(out[1], 3);
    assert_memory_equal(out + 24, "ORIGIN!!", 8);
    static const uint8_t half[4] = {0x80, 0, 0, 0};
    assert_memory_equal(out + 36, half, 4);
    uint32_t s =
        (uint32_t)out[32] << 24 | (uint32_t)out[33] << 16 | (uint32_t)out[34] << 8 | out[35];
    assert_int_equal(s, (uint32_t)(1796050150 + UINT64_C(2208988800)));
    c.is_synchronised =
        false; /* still the best clock its guests can have, and said to be a poor one */
    assert_true(ntp_answer(str_n((const char *)q, sizeof(q)), &c, out));
    assert_int_equal(out[1], 10);
    for (unsigned first = 0; first < 256; first++) {
        q[0] = (uint8_t)first;
        bool is_client = (first & 7) == 3 && (first >> 3 & 7) >= 1 && (first >> 3 & 7) <= 4;
        assert_int_equal(ntp_answer(str_n((const char *)q, sizeof(q)), &c, out), is_client);
    }
    q[0] = 0x23;
    assert_false(ntp_answer(str_n((const char *)q, sizeof(q) - 1), &c, out));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_who_gets_what),
        T(test_every_listed_name_answers),
        T(test_the_document_is_json),
        T(test_tokens_end),
        T(test_a_disabled_endpoint_says_nothing),
        T(test_two_interfaces),
        cmocka_unit_test(test_ntp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

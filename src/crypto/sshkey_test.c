#include "crypto/sshkey.h"

#include "base/buf.h"
#include "base/num.h"
#include "crypto/digest.h"

#include <errno.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* Made with ssh-keygen; fingerprints by the commands that AWS documents (ssh-keygen -l, openssl
 * md5 -c). */
#define ED_B64 "AAAAC3NzaC1lZDI1NTE5AAAAIMb7ewzeZpGy8mf9JxK6Fz5SmjKpTT/UGaxznfh3DfN0"
#define RSA_B64                                                                    \
    "AAAAB3NzaC1yc2EAAAADAQABAAAAgQCnm9WXprjrwNIjudTfgYnBuLm9eGgQTjVGG0oK8LVv3xP0" \
    "pJQbfJAyff/EX/DrWavbsFDqXgYwEUmhlG3acReTr3oxqdXEqGoC68I/vWb9KyXR/XuqQMg7T//y" \
    "xVc9vQr3awfxarbpDHzkjE+vAnI5hzsLL3Tfn7nmKG3GF5OK8Q=="
#define EC_B64                                                                     \
    "AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBDAmdznChAbfkkoejfgMZjgJ" \
    "TCDgXEuMBJpGnkVo4VDBx3nzlEokKOdmb7CfW3cNozAZShAa7UYOu+pQU7O657c="
#define ED_SPKI "MCowBQYDK2VwAyEAxvt7DN5mkbLyZ/0nEroXPlKaMqlNP9QZrHOd+HcN83Q="
#define RSA_SPKI                                                                   \
    "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQCnm9WXprjrwNIjudTfgYnBuLm9eGgQTjVGG0oK" \
    "8LVv3xP0pJQbfJAyff/EX/DrWavbsFDqXgYwEUmhlG3acReTr3oxqdXEqGoC68I/vWb9KyXR/Xuq" \
    "QMg7T//yxVc9vQr3awfxarbpDHzkjE+vAnI5hzsLL3Tfn7nmKG3GF5OK8QIDAQAB"
#define EC_SPKI                                                                    \
    "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEMCZ3OcKEBt+SSh6N+AxmOAlMIOBcS4wEmkaeRWjh" \
    "UMHHefOUSiQo52ZvsJ9bdw2jMBlKEBrtRg676lBTs7rntw=="
#define ED_FP  "osMILOjh12B4kQHvSGZpSRlABx6uptjflx54ZiXZIc0="
#define RSA_FP "b5:84:0c:0a:ef:e0:ca:14:8a:a7:a4:c8:00:0c:93:3b"

/* Blobs with one thing wrong each. */
#define SHORT_RSA                                                                  \
    "AAAAB3NzaC1yc2EAAAADAQABAAAAMgCnm9WXprjrwNIjudTfgYnBuLm9eGgQTjVGG0oK8LVv3xP0" \
    "pJQbfJAyff/EX/DrWavb"
#define EVEN_RSA                                                                   \
    "AAAAB3NzaC1yc2EAAAADAQABAAAAgQCnm9WXprjrwNIjudTfgYnBuLm9eGgQTjVGG0oK8LVv3xP0" \
    "pJQbfJAyff/EX/DrWavbsFDqXgYwEUmhlG3acReTr3oxqdXEqGoC68I/vWb9KyXR/XuqQMg7T//y" \
    "xVc9vQr3awfxarbpDHzkjE+vAnI5hzsLL3Tfn7nmKG3GF5OK8A=="
#define E1_RSA                                                                     \
    "AAAAB3NzaC1yc2EAAAABAQAAAIEAp5vVl6a468DSI7nU34GJwbi5vXhoEE41RhtKCvC1b98T9KSU" \
    "G3yQMn3/xF/w61mr27BQ6l4GMBFJoZRt2nEXk696ManVxKhqAuvCP71m/Ssl0f17qkDIO0//8sVX" \
    "Pb0K92sH8Wq26Qx85IxPrwJyOYc7Cy9035+55ihtxheTivE="
#define NEG_RSA                                                                    \
    "AAAAB3NzaC1yc2EAAAADAQABAAAAgKeb1ZemuOvA0iO51N+BicG4ub14aBBONUYbSgrwtW/fE/Sk" \
    "lBt8kDJ9/8Rf8OtZq9uwUOpeBjARSaGUbdpxF5OvejGp1cSoagLrwj+9Zv0rJdH9e6pAyDtP//LF" \
    "Vz29CvdrB/FqtukMfOSMT68CcjmHOwsvdN+fueYobcYXk4rx"
#define PAD_RSA                                                                    \
    "AAAAB3NzaC1yc2EAAAAEAAEAAQAAAIEAp5vVl6a468DSI7nU34GJwbi5vXhoEE41RhtKCvC1b98T" \
    "9KSUG3yQMn3/xF/w61mr27BQ6l4GMBFJoZRt2nEXk696ManVxKhqAuvCP71m/Ssl0f17qkDIO0//" \
    "8sVXPb0K92sH8Wq26Qx85IxPrwJyOYc7Cy9035+55ihtxheTivE="
#define TAIL_RSA                                                                   \
    "AAAAB3NzaC1yc2EAAAADAQABAAAAgQCnm9WXprjrwNIjudTfgYnBuLm9eGgQTjVGG0oK8LVv3xP0" \
    "pJQbfJAyff/EX/DrWavbsFDqXgYwEUmhlG3acReTr3oxqdXEqGoC68I/vWb9KyXR/XuqQMg7T//y" \
    "xVc9vQr3awfxarbpDHzkjE+vAnI5hzsLL3Tfn7nmKG3GF5OK8Xg="
#define CUT_RSA                                                                    \
    "AAAAB3NzaC1yc2EAAAADAQABAAAAgQCnm9WXprjrwNIjudTfgYnBuLm9eGgQTjVGG0oK8LVv3xP0" \
    "pJQbfJAyff/EX/DrWavbsFDqXgYwEUmhlG3acReTr3oxqdXEqGoC68I/vWb9KyXR/XuqQMg7T//y" \
    "xVc9vQr3awfxarbpDHzkjE+vAnI5hzsLL3Tfn7nmKG3GF5OK"
#define LONG_ED    "AAAAC3NzaC1lZDI1NTE5AAAAIcb7ewzeZpGy8mf9JxK6Fz5SmjKpTT/UGaxznfh3DfN0eA=="
#define TAIL_ED    "AAAAC3NzaC1lZDI1NTE5AAAAIMb7ewzeZpGy8mf9JxK6Fz5SmjKpTT/UGaxznfh3DfN0eA=="
#define HUGE_LEN   "/////3NzaC1yc2E="
#define DSS        "AAAAB3NzaC1kc3MAAAABAQ=="
#define CERT       "AAAAIHNzaC1lZDI1NTE5LWNlcnQtdjAxQG9wZW5zc2guY29tAAAAAXg="

#define SSH2_BEGIN "---- BEGIN SSH2 PUBLIC KEY ----\n"
#define SSH2_END   "---- END SSH2 PUBLIC KEY ----\n"
#define PEM_BEGIN  "-----BEGIN PUBLIC KEY-----\n"
#define PEM_END    "-----END PUBLIC KEY-----\n"

static const struct {
    const char *text, *line, *comment, *fingerprint; /* line NULL: refused */
    unsigned bits;
} rows[] = {
    {"ssh-ed25519 " ED_B64 " me@box\n", "ssh-ed25519 " ED_B64, "me@box", ED_FP, 256},
    {"ssh-ed25519 " ED_B64, "ssh-ed25519 " ED_B64, "", ED_FP, 256},
    {"  ssh-ed25519   " ED_B64 "   two words  \r\n", "ssh-ed25519 " ED_B64, "two words", ED_FP,
     256},
    {"ssh-ed25519\t" ED_B64 "\ttabs", "ssh-ed25519 " ED_B64, "tabs", ED_FP, 256},
    {SSH2_BEGIN "Comment: dos\r\n" ED_B64 "\r\n" SSH2_END, "ssh-ed25519 " ED_B64, "dos", ED_FP,
     256},
    {"ssh-rsa " RSA_B64 " caf\xc3\xa9", "ssh-rsa " RSA_B64, "caf\xc3\xa9", RSA_FP, 1024},
    {SSH2_BEGIN "Comment: \"a key\"\n" ED_B64 "\n" SSH2_END, "ssh-ed25519 " ED_B64, "\"a key\"",
     ED_FP, 256},
    {SSH2_BEGIN "Subject: me\nX-y: a \\\nb: c \\\nd\n" RSA_B64 "\n" SSH2_END,
     "ssh-rsa " RSA_B64, "", RSA_FP, 1024},
    {SSH2_BEGIN ED_B64 "\n" SSH2_END, "ssh-ed25519 " ED_B64, "", ED_FP, 256},
    {RSA_SPKI, "ssh-rsa " RSA_B64, "", RSA_FP, 1024},
    {ED_SPKI "\n", "ssh-ed25519 " ED_B64, "", ED_FP, 256},
    {PEM_BEGIN RSA_SPKI "\n" PEM_END, "ssh-rsa " RSA_B64, "", RSA_FP, 1024},
    /* Refused. */
    {"", NULL},
    {" \n", NULL},
    {"hello", NULL},
    {"ssh-rsa", NULL},
    {"ssh-rsa ", NULL},
    {"ssh-rsa ====", NULL},
    {"ssh-rsa A", NULL},
    {"ssh-rsa " RSA_B64 "=", NULL},
    {"ssh-rsa !" RSA_B64, NULL},
    {"ssh-ed25519 " RSA_B64, NULL}, /* the word in front lies */
    {"ssh-rsa " ED_B64, NULL},
    {"ecdsa-sha2-nistp256 " EC_B64, NULL},
    {EC_SPKI, NULL},
    {"ssh-dss " DSS, NULL},
    {"ssh-ed25519-cert-v01@openssh.com " CERT, NULL},
    {"ssh-rsa " SHORT_RSA, NULL},
    {"ssh-rsa " EVEN_RSA, NULL},
    {"ssh-rsa " E1_RSA, NULL},
    {"ssh-rsa " NEG_RSA, NULL},
    {"ssh-rsa " PAD_RSA, NULL},
    {"ssh-rsa " TAIL_RSA, NULL},
    {"ssh-rsa " CUT_RSA, NULL},
    {"ssh-rsa " HUGE_LEN, NULL},
    {"ssh-ed25519 " LONG_ED, NULL},
    {"ssh-ed25519 " TAIL_ED, NULL},
    {"ssh-ed25519 " ED_B64 "\nssh-ed25519 " ED_B64 "\n", NULL}, /* two keys */
    {"from=\"*\" ssh-ed25519 " ED_B64, NULL},                   /* options of authorized_keys */
    {SSH2_BEGIN "Comment: a\rb\n" ED_B64 "\n" SSH2_END, NULL},  /* a lone CR */
    {"ssh-ed25519 " ED_B64 " bad\x01"
     "byte",
     NULL},
    {"ssh-ed25519 " ED_B64 " \xff", NULL},
    {"-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n", NULL},
    {SSH2_BEGIN SSH2_END, NULL},
    {SSH2_BEGIN "Comment: x\n" SSH2_END, NULL},
    {SSH2_BEGIN ED_B64, NULL},
    {PEM_BEGIN PEM_END, NULL},
    {PEM_BEGIN EC_SPKI "\n" PEM_END, NULL},
};

static void test_parse(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct sshkey_public k = {0};
        struct err err = ERR_INIT;
        int r = sshkey_parse(str_c(rows[i].text), &k, &err);
        if ((r == 0) != (rows[i].line != NULL)) {
            fail_msg("row %zu: %d %s", i, r, err.msg);
        }
        if (r < 0) {
            assert_int_equal(r, -EINVAL);
            assert_string_equal(err.name, "InvalidKey.Format");
            assert_null(k.line);
            continue;
        }
        assert_string_equal(k.line, rows[i].line);
        assert_string_equal(k.comment, rows[i].comment);
        assert_string_equal(k.fingerprint, rows[i].fingerprint);
        assert_int_equal(k.bits, rows[i].bits);
        sshkey_public_done(&k);
    }
}

/* Cut short at every byte: refused, or (a comment cut short) still the same key. */
static void test_cut(void **state)
{
    static const char text[] = "ssh-rsa " RSA_B64 " comment";
    size_t whole = strlen("ssh-rsa " RSA_B64);
    for (size_t n = 0; n < sizeof(text); n++) {
        struct sshkey_public k = {0};
        int r = sshkey_parse(str_n(text, n), &k, NULL);
        assert_int_equal(r, n < whole || n == sizeof(text) ? -EINVAL : 0);
        sshkey_public_done(&k);
    }
}

static void test_generate_rsa(void **state)
{
    struct sshkey_pair p = {.private_pem = SECRET_INIT};
    assert_int_equal(sshkey_generate(SSHKEY_RSA, STR("name"), &p, NULL), 0);
    struct str pem = secret_str(&p.private_pem);
    assert_true(str_has_prefixc(pem, "-----BEGIN RSA PRIVATE KEY-----\n"));
    assert_true(str_has_suffix(pem, STR("-----END RSA PRIVATE KEY-----\n")));
    assert_int_equal(strlen(p.fingerprint), 59);
    assert_int_equal(strlen(p.public_.fingerprint), 47);
    assert_int_equal(p.public_.bits, 2048);
    /* The public half is that of the private text, and is accepted as an import. */
    BIO *b = BIO_new_mem_buf(pem.p, (int)pem.n);
    EVP_PKEY *key = PEM_read_bio_PrivateKey(b, NULL, NULL, NULL);
    BIO_free(b);
    assert_non_null(key);
    unsigned char *der = NULL;
    int n = i2d_PUBKEY(key, &der);
    char spki[1024], fp[64];
    uint8_t hash[MD5_SIZE];
    EVP_EncodeBlock((unsigned char *)spki, der, n);
    md5(str_n((char *)der, (size_t)n), hash);
    digest_hex_colons(hash, sizeof(hash), fp);
    OPENSSL_free(der);
    EVP_PKEY_free(key);
    struct sshkey_public k = {0};
    assert_int_equal(sshkey_parse(str_c(spki), &k, NULL), 0);
    assert_string_equal(k.line, p.public_.line);
    assert_string_equal(fp, p.public_.fingerprint);
    sshkey_public_done(&k);
    sshkey_pair_done(&p);
    assert_null(p.public_.line);
    assert_false(secret_is_set(&p.private_pem));
}

/* Takes one length-prefixed string off. */
static struct str take(struct str *rest)
{
    assert_true(rest->n >= 4);
    size_t n = (size_t)(unsigned char)rest->p[2] << 8 | (unsigned char)rest->p[3];
    assert_true(rest->p[0] == 0 && rest->p[1] == 0 && n <= rest->n - 4);
    struct str s = str_n(rest->p + 4, n);
    *rest = str_skip(*rest, 4 + n);
    return s;
}

static void test_generate_ed25519(void **state)
{
    struct sshkey_pair p = {.private_pem = SECRET_INIT};
    assert_int_equal(sshkey_generate(SSHKEY_ED25519, STR("a name"), &p, NULL), 0);
    assert_string_equal(p.fingerprint, p.public_.fingerprint);
    assert_int_equal(strlen(p.fingerprint), 44);
    struct str rest = secret_str(&p.private_pem), line = STR_NONE;
    unsigned char raw[2048];
    size_t n = 0;
    while (str_next(&rest, '\n', &line)) {
        assert_true(line.n <= 70);
        if (line.n && line.p[0] != '-') {
            int k = EVP_DecodeBlock(raw + n, (const unsigned char *)line.p, (int)line.n);
            assert_true(k > 0);
            n += (size_t)k - (line.p[line.n - 1] == '=') - (line.p[line.n - 2] == '=');
        }
    }
    struct str all = str_n((char *)raw, n);
    assert_memory_equal(all.p, "openssh-key-v1", 15);
    all = str_skip(all, 15);
    assert_true(str_eqc(take(&all), "none"));
    assert_true(str_eqc(take(&all), "none"));
    assert_true(str_eqc(take(&all), ""));
    assert_memory_equal(all.p, "\0\0\0\1", 4);
    all = str_skip(all, 4);
    struct str blob = take(&all), inner = take(&all);
    assert_int_equal(all.n, 0);
    assert_int_equal(inner.n % 8, 0);
    assert_memory_equal(inner.p, inner.p + 4, 4);
    inner = str_skip(inner, 8);
    assert_true(str_eqc(take(&inner), "ssh-ed25519"));
    struct str pub = take(&inner), priv = take(&inner);
    assert_int_equal(priv.n, 64);
    assert_true(str_eq(pub, str_skip(priv, 32)));
    assert_true(str_has_suffix(blob, pub));
    assert_true(str_eqc(take(&inner), "a name"));
    for (size_t i = 0; i < inner.n; i++) {
        assert_int_equal(inner.p[i], i + 1);
    }
    /* The seed makes this very public key. */
    EVP_PKEY *key =
        EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, (const unsigned char *)priv.p, 32);
    unsigned char made[32];
    size_t made_n = sizeof(made);
    assert_int_equal(EVP_PKEY_get_raw_public_key(key, made, &made_n), 1);
    EVP_PKEY_free(key);
    assert_memory_equal(made, pub.p, 32);
    struct sshkey_public k = {0};
    assert_int_equal(sshkey_parse(str_c(p.public_.line), &k, NULL), 0);
    assert_string_equal(k.fingerprint, p.fingerprint);
    sshkey_public_done(&k);
    sshkey_pair_done(&p);
    char long_name[300];
    memset(long_name, 'x', sizeof(long_name));
    assert_int_equal(sshkey_generate(SSHKEY_ED25519, str_n(long_name, 256), &p, NULL), -EINVAL);
}

static void put(struct buf *b, struct str s)
{
    char n[4] = {(char)(s.n >> 24), (char)(s.n >> 16), (char)(s.n >> 8), (char)s.n};
    buf_add(b, str_n(n, 4));
    buf_add(b, s);
}

/* One "Name: value" of a PPK file. */
static struct str ppk_field(struct str text, const char *name)
{
    ptrdiff_t at = str_find_str(text, str_c(name));
    assert_true(at >= 0);
    return str_cut(str_skip(text, (size_t)at + strlen(name) + 2), '\n');
}

/* The lines that follow "Public-Lines: n" or "Private-Lines: n", decoded, with a length in
 * front as the MAC wants it. */
static void ppk_blob(struct str text, const char *name, struct buf *out)
{
    ptrdiff_t at = str_find_str(text, str_c(name));
    assert_true(at >= 0);
    struct str rest = str_skip(text, (size_t)at), line = STR_NONE;
    assert_true(str_next(&rest, '\n', &line));
    uint64_t n_lines = 0;
    assert_int_equal(num_u64(str_skip(line, strlen(name) + 2), 99, &n_lines), 0);
    AUTO_BUF raw;
    buf_init(&raw, 4096);
    for (uint64_t i = 0; i < n_lines; i++) {
        assert_true(str_next(&rest, '\n', &line));
        assert_true(line.n <= 64);
        char *p = buf_reserve(&raw, line.n);
        int n = EVP_DecodeBlock((unsigned char *)p, (const unsigned char *)line.p, (int)line.n);
        buf_commit(&raw, (size_t)n - (line.p[line.n - 1] == '=') - (line.p[line.n - 2] == '='));
    }
    put(out, buf_str(&raw));
}

/* Compared byte by byte with puttygen's once; here the file must hold together: its own MAC,
 * made anew from its parts. */
static void test_ppk(void **state)
{
    for (int type = SSHKEY_RSA; type <= SSHKEY_ED25519; type++) {
        struct sshkey_pair p = {.private_pem = SECRET_INIT};
        assert_int_equal(sshkey_generate((enum sshkey_type)type, STR("a name"), &p, NULL), 0);
        struct str ppk = secret_str(&p.private_ppk);
        const char *alg = type == SSHKEY_RSA ? "ssh-rsa" : "ssh-ed25519";
        assert_true(str_has_prefixc(ppk, "PuTTY-User-Key-File-2: "));
        assert_true(str_eqc(ppk_field(ppk, "PuTTY-User-Key-File-2"), alg));
        assert_true(str_eqc(ppk_field(ppk, "Encryption"), "none"));
        assert_true(str_eqc(ppk_field(ppk, "Comment"), "a name"));
        AUTO_BUF b;
        buf_init(&b, 8192);
        put(&b, str_c(alg));
        put(&b, STR("none"));
        put(&b, STR("a name"));
        ppk_blob(ppk, "Public-Lines", &b);
        ppk_blob(ppk, "Private-Lines", &b);
        uint8_t key[SHA1_SIZE], mac[SHA1_SIZE];
        unsigned mac_n = sizeof(mac);
        char hex[2 * SHA1_SIZE + 1];
        sha1(STR("putty-private-key-file-mac-key"), key);
        assert_non_null(
            HMAC(EVP_sha1(), key, sizeof(key), (const unsigned char *)b.p, b.n, mac, &mac_n));
        digest_hex(mac, sizeof(mac), hex);
        assert_true(str_eqc(ppk_field(ppk, "Private-MAC"), hex));
        sshkey_pair_done(&p);
        assert_false(secret_is_set(&p.private_ppk));
    }
    struct sshkey_pair p = {.private_pem = SECRET_INIT};
    assert_int_equal(sshkey_generate(SSHKEY_ED25519, STR("two\nlines"), &p, NULL), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_generate_rsa), cmocka_unit_test(test_generate_ed25519),
        cmocka_unit_test(test_ppk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

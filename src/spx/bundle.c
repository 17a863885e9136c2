#include "spx/bundle.h"

#include <assert.h>
#include <stdio.h>

#define BLOCK   512u
#define REMOVED "[removed]"

enum { LOWER = 1, UPPER = 2, DIGIT = 4, OTHER = 8 };

static unsigned class_of(char c)
{
    if (c >= 'a' && c <= 'z') {
        return LOWER;
    }
    if (c >= 'A' && c <= 'Z') {
        return UPPER;
    }
    if (c >= '0' && c <= '9') {
        return DIGIT;
    }
    return c == '+' || c == '/' || c == '=' || c == '_' || c == '-' ? OTHER : 0;
}

/* Bytes from the start that are of these classes; which of them there were. */
static size_t run_of(struct str s, unsigned allowed, unsigned *ret_seen)
{
    size_t n = 0;
    *ret_seen = 0;
    while (n < s.n && (class_of(s.p[n]) & allowed) != 0) {
        *ret_seen |= class_of(s.p[n++]);
    }
    return n;
}

static bool has_secret_word(struct str s, size_t *ret_end)
{
    static const char *const words[] = {
        "secret",     "password",      "passwd",      "passphrase",  "user_data",
        "user-data",  "userdata",      "private_key", "private-key", "token",
        "credential", "authorization", "signature",   "cookie"};
    for (size_t at = 0; at < s.n; at++) {
        for (size_t i = 0; i < ARRAY_LEN(words); i++) {
            size_t n = strlen(words[i]);
            if (s.n - at >= n && str_ieqc(str_n(s.p + at, n), words[i])) {
                *ret_end = at + n;
                return true;
            }
        }
    }
    return false;
}

/* The end of "//user:password@" when the text begins so. */
static size_t url_password(struct str s)
{
    size_t n = 2;
    if (!str_has_prefixc(s, "//")) {
        return 0;
    }
    while (n < s.n && s.p[n] != '/' && s.p[n] != ' ' && s.p[n] != '"' && s.p[n] != '@') {
        n++;
    }
    return n < s.n && s.p[n] == '@' ? n + 1 : 0;
}

/* A word of letters and digits: a key in hex or base64 has many of them and no hyphens. */
static void redact_word(struct str w, unsigned seen, struct buf *out)
{
    const unsigned all = LOWER | UPPER | DIGIT;
    if ((w.n >= 20 && (seen & all) == all) ||
        (w.n >= 16 && (str_has_prefixc(w, "AKIA") || str_has_prefixc(w, "ASIA")))) {
        buf_addc(out, REMOVED);
        return;
    }
    while (w.n > 0) {
        unsigned part_seen = 0;
        size_t n = run_of(w, all, &part_seen);
        if (n == 0) {
            buf_add_char(out, w.p[0]);
            n = 1;
        } else if (n >= 24 && part_seen != DIGIT) {
            buf_addc(out, REMOVED);
        } else {
            buf_add(out, str_n(w.p, n));
        }
        w = str_skip(w, n);
    }
}

static void redact_line(struct str line, struct buf *out)
{
    size_t end = line.n;
    bool is_cut = has_secret_word(line, &end);
    struct str s = str_n(line.p, end);
    while (s.n > 0) {
        unsigned seen = 0;
        size_t n = url_password(s);
        if (n > 0) {
            buf_addc(out, "//" REMOVED "@");
        } else if (str_has_prefixc(s, "//")) {
            n = 2;
            buf_addc(out, "//");
        } else if ((n = run_of(s, LOWER | UPPER | DIGIT | OTHER, &seen)) > 0) {
            redact_word(str_n(s.p, n), seen, out);
        } else {
            n = 1;
            buf_add_char(out, s.p[0]);
        }
        s = str_skip(s, n);
    }
    buf_addc(out, is_cut && end < line.n ? " " REMOVED "\n" : "\n");
}

void bundle_redact(struct str text, struct buf *out)
{
    struct str line;
    bool is_key = false;
    while (text.p && text.n > 0 && str_next(&text, '\n', &line)) {
        if (str_find_str(line, STR("-----BEGIN ")) >= 0) {
            is_key = true;
            buf_addc(out, "[removed: a block of PEM]\n");
        }
        if (!is_key) {
            redact_line(line, out);
        } else if (str_find_str(line, STR("-----END ")) >= 0) {
            is_key = false;
        }
    }
}

void bundle_add(struct buf *tar, const char *name, struct str text, uint64_t time_s)
{
    char h[BLOCK + 1] = {0};
    unsigned sum = 0;
    assert(strlen(name) < 100);
    (void)snprintf(h, 100, "%s", name);
    (void)snprintf(h + 100, 8, "0000600");
    (void)snprintf(h + 108, 8, "0000000");
    (void)snprintf(h + 116, 8, "0000000");
    (void)snprintf(h + 124, 12, "%011o", (unsigned)text.n);
    (void)snprintf(h + 136, 12, "%011llo", (unsigned long long)time_s & 077777777777ULL);
    memset(h + 148, ' ', 8); /* the sum is made as if its own field were blank */
    h[156] = '0';
    memcpy(h + 257, "ustar\00000", 8);
    for (size_t i = 0; i < BLOCK; i++) {
        sum += (unsigned char)h[i];
    }
    (void)snprintf(h + 148, 8, "%06o", sum & 0777777);
    buf_add(tar, str_n(h, BLOCK));
    buf_add(tar, text);
    memset(h, 0, BLOCK);
    buf_add(tar, str_n(h, (BLOCK - text.n % BLOCK) % BLOCK));
}

void bundle_end(struct buf *tar)
{
    static const char zero[2 * BLOCK];
    buf_add(tar, str_n(zero, sizeof(zero)));
}

#include "awsgw/relay_answer.h"
#include "base/num.h"

#include <errno.h>

static struct str take_line(struct str *rest)
{
    struct str line = str_cut(*rest, '\r');
    *rest = str_skip(*rest, line.n + 2);
    return line;
}

/* "HTTP/1.1 200 OK"; the reason may be empty or missing. */
static bool parse_status(struct str line, int *ret)
{
    uint64_t v = 0;
    if (line.n < 12 || !str_has_prefixc(line, "HTTP/1.1 ") ||
        num_u64(str_n(line.p + 9, 3), 999, &v) < 0 || v < 100 ||
        (line.n > 12 && line.p[12] != ' ')) {
        return false;
    }
    *ret = (int)v;
    return true;
}

/* "close", "keep-alive, close" */
static bool has_word(struct str list, const char *word)
{
    struct str rest = list, item = STR_NONE;
    while (rest.p && str_next(&rest, ',', &item)) {
        if (str_ieqc(str_trim(item), word)) {
            return true;
        }
    }
    return false;
}

/* False: refused. '*ret_is_own': of the connection, not for the client. */
static bool parse_known(struct relay_answer *a, struct str name, struct str value,
                        bool *ret_is_own)
{
    *ret_is_own = true;
    if (str_ieqc(name, "Content-Length")) {
        uint64_t v = 0;
        if (a->content_length >= 0 || a->is_chunked || value.n > 18 ||
            num_u64(value, INT64_MAX, &v) < 0) {
            return false;
        }
        a->content_length = (int64_t)v;
    } else if (str_ieqc(name, "Transfer-Encoding")) {
        if (a->content_length >= 0 || a->is_chunked || !str_ieqc(value, "chunked")) {
            return false;
        }
        a->is_chunked = true;
    } else if (str_ieqc(name, "Connection")) {
        a->is_close = a->is_close || has_word(value, "close");
    } else {
        *ret_is_own =
            str_ieqc(name, "Keep-Alive") || str_ieqc(name, "Date") || str_ieqc(name, "Server");
    }
    return true;
}

int relay_answer_parse(const char *p, size_t n, struct relay_answer *ret)
{
    struct str rest = str_n(p, n), line = take_line(&rest);
    ret->n_headers = 0;
    ret->content_length = -1;
    ret->is_chunked = ret->is_close = false;
    if (!parse_status(line, &ret->status)) {
        return -EBADMSG;
    }
    for (line = take_line(&rest); line.n > 0; line = take_line(&rest)) {
        struct str name = str_cut(line, ':');
        bool is_own = false;
        if (name.n == line.n || !http1_is_token(name)) {
            return -EBADMSG; /* also folded lines: they begin with a blank */
        }
        struct str value = str_trim(str_skip(line, name.n + 1));
        if (!http1_is_value(value) || !parse_known(ret, name, value, &is_own)) {
            return -EBADMSG;
        }
        if (is_own) {
            continue;
        }
        if (ret->n_headers == HTTP1_MAX_HEADERS) {
            return -EBADMSG;
        }
        ret->headers[ret->n_headers++] = (struct http_header){name, value};
    }
    return rest.n == 0 ? 0 : -EBADMSG;
}

#include "base/time.h"

#include "base/num.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>

static uint64_t now_ns(clockid_t id)
{
    struct timespec ts = {0};
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t time_mono_ns(void)
{
    return now_ns(CLOCK_MONOTONIC);
}

uint64_t time_wall_ns(void)
{
    return now_ns(CLOCK_REALTIME);
}

static struct tm broken_down(uint64_t wall_ns)
{
    time_t t = (time_t)(wall_ns / NS_PER_S);
    struct tm tm = {0};
    gmtime_r(&t, &tm);
    return tm;
}

const char *time_iso_ms(uint64_t wall_ns, char buf[TIME_ISO_SIZE])
{
    struct tm tm = broken_down(wall_ns);
    char date[24];
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(buf, TIME_ISO_SIZE, "%s.%03uZ", date,
             (unsigned)(wall_ns % NS_PER_S / NS_PER_MS) % 1000u);
    return buf;
}

const char *time_iso_s(uint64_t wall_ns, char buf[TIME_ISO_SIZE])
{
    struct tm tm = broken_down(wall_ns);
    strftime(buf, TIME_ISO_SIZE, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return buf;
}

const char *time_basic(uint64_t wall_ns, char buf[TIME_ISO_SIZE])
{
    struct tm tm = broken_down(wall_ns);
    strftime(buf, TIME_ISO_SIZE, "%Y%m%dT%H%M%SZ", &tm);
    return buf;
}

static const char days[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                   "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

const char *time_http(uint64_t wall_ns, char buf[TIME_ISO_SIZE])
{
    struct tm tm = broken_down(wall_ns);
    snprintf(buf, TIME_ISO_SIZE, "%s, %02u %s %04u %02u:%02u:%02u GMT", days[tm.tm_wday % 7],
             (unsigned)tm.tm_mday % 100u, months[tm.tm_mon % 12],
             (unsigned)(tm.tm_year + 1900) % 10000u, (unsigned)tm.tm_hour % 100u,
             (unsigned)tm.tm_min % 100u, (unsigned)tm.tm_sec % 100u);
    return buf;
}

/* Reads exactly 'n' digits at *s and drops them. */
static int digits(struct str *s, size_t n, int max, int *ret)
{
    uint64_t v = 0;
    if (s->n < n || num_u64(str_n(s->p, n), (uint64_t)max, &v) < 0) {
        return -EINVAL;
    }
    *s = str_skip(*s, n);
    *ret = (int)v;
    return 0;
}

static int literal(struct str *s, char c)
{
    if (s->n == 0 || s->p[0] != c) {
        return -EINVAL;
    }
    *s = str_skip(*s, 1);
    return 0;
}

static int to_wall(struct tm tm, int64_t offset_s, uint64_t frac_ns, uint64_t *ret)
{
    struct tm norm = tm;
    time_t t = timegm(&norm);
    if (norm.tm_mday != tm.tm_mday || norm.tm_mon != tm.tm_mon) {
        return -EINVAL; /* 31 February */
    }
    int64_t s = (int64_t)t - offset_s;
    if (s < 0) {
        return -EINVAL;
    }
    *ret = (uint64_t)s * NS_PER_S + frac_ns;
    return 0;
}

static int parse_fraction(struct str *s, uint64_t *ret_ns)
{
    if (s->n == 0 || s->p[0] != '.') {
        return 0;
    }
    *s = str_skip(*s, 1);
    uint64_t scale = NS_PER_S / 10, ns = 0;
    size_t n = 0;
    for (; n < s->n && s->p[n] >= '0' && s->p[n] <= '9'; n++) {
        ns += (uint64_t)(s->p[n] - '0') * scale;
        scale /= 10;
    }
    if (n == 0) {
        return -EINVAL;
    }
    *s = str_skip(*s, n);
    *ret_ns = ns;
    return 0;
}

static int parse_zone(struct str *s, int64_t *ret_offset_s)
{
    if (s->n == 1 && (s->p[0] == 'Z' || s->p[0] == 'z')) {
        *ret_offset_s = 0;
        return 0;
    }
    if (s->n == 0 || (s->p[0] != '+' && s->p[0] != '-')) {
        return -EINVAL;
    }
    int sign = s->p[0] == '-' ? -1 : 1;
    int h = 0, m = 0;
    *s = str_skip(*s, 1);
    if (digits(s, 2, 23, &h) < 0) {
        return -EINVAL;
    }
    if (s->n > 0 && s->p[0] == ':') {
        *s = str_skip(*s, 1);
    }
    if (digits(s, 2, 59, &m) < 0 || s->n != 0) {
        return -EINVAL;
    }
    *ret_offset_s = sign * (h * 3600 + m * 60);
    return 0;
}

int time_parse_iso(struct str s, uint64_t *ret_wall_ns)
{
    struct tm tm = {0};
    uint64_t frac = 0;
    int64_t offset = 0;
    if (digits(&s, 4, 9999, &tm.tm_year) < 0 || literal(&s, '-') < 0 ||
        digits(&s, 2, 12, &tm.tm_mon) < 0 || literal(&s, '-') < 0 ||
        digits(&s, 2, 31, &tm.tm_mday) < 0 || tm.tm_mon == 0 || tm.tm_mday == 0) {
        return -EINVAL;
    }
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    if (s.n == 0) {
        return to_wall(tm, 0, 0, ret_wall_ns);
    }
    if ((literal(&s, 'T') < 0 && literal(&s, ' ') < 0) || digits(&s, 2, 23, &tm.tm_hour) < 0 ||
        literal(&s, ':') < 0 || digits(&s, 2, 59, &tm.tm_min) < 0 || literal(&s, ':') < 0 ||
        digits(&s, 2, 60, &tm.tm_sec) < 0 || parse_fraction(&s, &frac) < 0 ||
        parse_zone(&s, &offset) < 0) {
        return -EINVAL;
    }
    return to_wall(tm, offset, frac, ret_wall_ns);
}

int time_parse_basic(struct str s, uint64_t *ret_wall_ns)
{
    struct tm tm = {0};
    if (digits(&s, 4, 9999, &tm.tm_year) < 0 || digits(&s, 2, 12, &tm.tm_mon) < 0 ||
        digits(&s, 2, 31, &tm.tm_mday) < 0 || literal(&s, 'T') < 0 ||
        digits(&s, 2, 23, &tm.tm_hour) < 0 || digits(&s, 2, 59, &tm.tm_min) < 0 ||
        digits(&s, 2, 60, &tm.tm_sec) < 0 || literal(&s, 'Z') < 0 || s.n != 0 ||
        tm.tm_mon == 0 || tm.tm_mday == 0) {
        return -EINVAL;
    }
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    return to_wall(tm, 0, 0, ret_wall_ns);
}

int time_parse_http(struct str s, uint64_t *ret_wall_ns)
{
    struct tm tm = {0};
    if (s.n != 29 || s.p[3] != ',' || s.p[4] != ' ' || !str_eqc(str_skip(s, 25), " GMT")) {
        return -EINVAL;
    }
    s = str_skip(s, 5);
    if (digits(&s, 2, 31, &tm.tm_mday) < 0 || literal(&s, ' ') < 0) {
        return -EINVAL;
    }
    tm.tm_mon = -1;
    for (int i = 0; i < 12; i++) {
        if (str_has_prefixc(s, months[i])) {
            tm.tm_mon = i;
        }
    }
    s = str_skip(s, 3);
    if (tm.tm_mon < 0 || literal(&s, ' ') < 0 || digits(&s, 4, 9999, &tm.tm_year) < 0 ||
        literal(&s, ' ') < 0 || digits(&s, 2, 23, &tm.tm_hour) < 0 || literal(&s, ':') < 0 ||
        digits(&s, 2, 59, &tm.tm_min) < 0 || literal(&s, ':') < 0 ||
        digits(&s, 2, 60, &tm.tm_sec) < 0) {
        return -EINVAL;
    }
    tm.tm_year -= 1900;
    return to_wall(tm, 0, 0, ret_wall_ns);
}

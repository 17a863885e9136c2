#include "codec/metric.h"

void metric_family(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_fmt(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void add_escaped(struct buf *out, struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c == '\n') {
            buf_addc(out, "\\n");
        } else {
            if (c == '"' || c == '\\') {
                buf_addc(out, "\\");
            }
            buf_add_char(out, c);
        }
    }
}

static void add_name(struct buf *out, const char *name, const struct metric_label *labels,
                     size_t n)
{
    buf_addc(out, name);
    for (size_t i = 0; i < n; i++) {
        buf_fmt(out, "%s%s=\"", i == 0 ? "{" : ",", labels[i].name);
        add_escaped(out, labels[i].value);
        buf_addc(out, "\"");
    }
    buf_addc(out, n > 0 ? "} " : " ");
}

void metric_u64(struct buf *out, const char *name, const struct metric_label *labels, size_t n,
                uint64_t value)
{
    add_name(out, name, labels, n);
    buf_fmt(out, "%llu\n", (unsigned long long)value);
}

void metric_seconds(struct buf *out, const char *name, const struct metric_label *labels,
                    size_t n, uint64_t ns)
{
    add_name(out, name, labels, n);
    buf_fmt(out, "%llu.%09llu\n", (unsigned long long)(ns / 1000000000u),
            (unsigned long long)(ns % 1000000000u));
}

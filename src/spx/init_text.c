#include "spx/init_text.h"
#include "codec/toml.h"
#include "model/config.h"
#include <inttypes.h>
#include <stdio.h>

static void line(struct buf *out, const char *key, const char *value)
{
    buf_fmt(out, "%s = ", key);
    toml_quote(str_c(value), out);
    buf_add_char(out, '\n');
}

static void address(struct buf *out, const char *key, uint32_t ip)
{
    buf_fmt(out, "%s = \"%u.%u.%u.%u\"\n", key, ip >> 24, ip >> 16 & 255, ip >> 8 & 255,
            ip & 255);
}

static void store_of_objects(const struct init_text *t, struct buf *out)
{
    struct str dflt = STR_NONE;
    char path[512];
    snprintf(path, sizeof(path), "%s/" DATA_PREDASTORE_DRIVE, t->data_dir);
    dflt = str_c(path);
    const struct str *v = t->drives.n ? t->drives.v : &dflt;
    size_t n = t->drives.n ? t->drives.n : 1;
    uint64_t data = 1, parity = 0;
    config_default_rs(n, &data, &parity);
    buf_fmt(
        out,
        "\n# The object store (S3). Drives: folders, best each a disk of its own. Objects are\n"
        "# spread over 'data' of them; 'parity' more may be lost without losing any.\n"
        "[nodes.%s.predastore]\nport = %" PRIu64 "\ndrives = [",
        t->node, t->s3_port);
    for (size_t i = 0; i < n; i++) {
        buf_addc(out, i ? ", " : "");
        toml_quote(v[i], out);
    }
    buf_fmt(out, "]\nrs = { data = %" PRIu64 ", parity = %" PRIu64 " }\nencrypt = true\n", data,
            parity);
}

void init_text(const struct init_text *t, struct buf *out)
{
    buf_fmt(out,
            "# Spinifex, made by 'spx admin init'. All keys: spx config doc\n"
            "# After a change: spx config check, then restart the services.\n"
            "version = %u\n",
            CONFIG_VERSION);
    line(out, "node", t->node);
    buf_addc(out, "\n[aws]\n");
    line(out, "region", t->region);
    buf_addc(
        out,
        "\n[network]\n"
        "external_mode = \"pool\"\n"
        "guest_mtu = 9001\n"
        "# The LAN interface that public addresses answer on, such as \"eth0\".\n"
        "# Empty: they are reached from this host only.\n"
        "uplink = \"\"\n"
        "\n"
        "# Public addresses of guests. On a LAN: a range that nothing else uses and the DHCP\n"
        "# server does not give out, the LAN's router as gateway, and its uplink above.\n"
        "[[network.external_pools]]\n"
        "name = \"wan\"\n"
        "source = \"static\"\n");
    address(out, "range_start", t->pool_net + 10);
    address(out, "range_end", t->pool_net + 250);
    address(out, "gateway", t->pool_net + 1);
    buf_addc(out, "prefix_len = 24\ndns_servers = [");
    for (size_t i = 0; i < t->dns_servers.n; i++) {
        buf_addc(out, i ? ", " : "");
        toml_quote(t->dns_servers.v[i], out);
    }
    buf_fmt(out, "]\n\n[nodes.%s]\n", t->node);
    line(out, "host", t->host);
    if (t->az[0]) {
        line(out, "az", t->az);
    }
    line(out, "data_dir", t->data_dir);
    line(out, "run_dir", t->run_dir);
    buf_fmt(out,
            "uid_base = %" PRIu64 "\n\n[nodes.%s.awsgw]\nport = %" PRIu64
            "\nmetrics_port = %" PRIu64 "\n",
            t->uid_base, t->node, t->port, t->metrics_port);
    store_of_objects(t, out);
}

#include "spx/clients.h"

/* A string as Python, JavaScript and HCL read it; HCL alone takes ${ and %{ for more. */
static void quoted(struct buf *out, const char *text, bool is_hcl)
{
    buf_add_char(out, '"');
    for (const char *p = text; *p; p++) {
        if (*p == '"' || *p == '\\') {
            buf_add_char(out, '\\');
        } else if (is_hcl && (*p == '$' || *p == '%') && p[1] == '{') {
            buf_add_char(out, *p);
        }
        buf_add_char(out, *p);
    }
    buf_add_char(out, '"');
}

static void pair(struct buf *out, const char *before, const char *value, const char *after)
{
    buf_addc(out, before);
    quoted(out, value, false);
    buf_addc(out, after);
}

static void aws_text(const struct client_setup *c, struct buf *out)
{
    buf_fmt(out,
            "export AWS_PROFILE=%s\n"
            "aws sts get-caller-identity\n"
            "# Before 2.13 (1.29) the AWS CLI reads no endpoint from a profile and calls "
            "Amazon:\n"
            "aws --endpoint-url %s --ca-bundle '%s' sts get-caller-identity\n"
            "spx aws sts get-caller-identity    # the same\n",
            c->profile, c->endpoint, c->ca_path);
}

static void boto3_text(const struct client_setup *c, struct buf *out)
{
    buf_addc(out, "import boto3\n\n");
    pair(out, "session = boto3.Session(profile_name=", c->profile, ")\n");
    pair(out, "at = {\"verify\": ", c->ca_path, "}\n");
    pair(out, "ec2 = session.client(\"ec2\", endpoint_url=", c->endpoint, ", **at)\n");
    pair(out, "s3 = session.client(\"s3\", endpoint_url=", c->s3_endpoint, ", **at)\n");
    buf_addc(out, "print([b[\"Name\"] for b in s3.list_buckets()[\"Buckets\"]])\n"
                  "print(len(ec2.describe_instances()[\"Reservations\"]))\n");
}

static void node_text(const struct client_setup *c, struct buf *out)
{
    buf_fmt(out,
            "// npm install @aws-sdk/client-s3 (and client-ec2: the same with %s)\n"
            "// AWS_PROFILE=%s NODE_EXTRA_CA_CERTS='%s' node list.mjs\n"
            "import { ListBucketsCommand, S3Client } from \"@aws-sdk/client-s3\";\n\n"
            "const s3 = new S3Client({\n",
            c->endpoint, c->profile, c->ca_path);
    pair(out, "  endpoint: ", c->s3_endpoint, ",\n");
    pair(out, "  region: ", c->region, ",\n");
    buf_addc(out, "  forcePathStyle: true,\n});\n"
                  "console.log((await s3.send(new ListBucketsCommand({}))).Buckets ?? []);\n");
}

static void rclone_text(const struct client_setup *c, struct buf *out)
{
    buf_fmt(
        out,
        "# ~/.config/rclone/rclone.conf. rclone cannot take the CA out of the profile, and\n"
        "# fails when it finds one there, so it reads the credentials alone:\n"
        "# AWS_CONFIG_FILE=/dev/null rclone --ca-cert '%s' lsd %s:\n"
        "[%s]\n"
        "type = s3\n"
        "provider = Other\n"
        "env_auth = true\n"
        "profile = %s\n"
        "region = %s\n"
        "location_constraint = %s\n"
        "endpoint = %s\n"
        "force_path_style = true\n",
        c->ca_path, c->profile, c->profile, c->profile, c->region, c->region, c->s3_endpoint);
}

static void hcl_pair(struct buf *out, const char *before, const char *value)
{
    buf_addc(out, before);
    quoted(out, value, true);
    buf_add_char(out, '\n');
}

static void terraform_text(const struct client_setup *c, struct buf *out)
{
    buf_addc(out, "provider \"aws\" {\n");
    hcl_pair(out, "  profile                     = ", c->profile);
    hcl_pair(out, "  region                      = ", c->region);
    hcl_pair(out, "  custom_ca_bundle            = ", c->ca_path);
    buf_addc(out, "  shared_config_files         = [\"/dev/null\"] # no ca_bundle from there\n"
                  "  s3_use_path_style           = true\n"
                  "  skip_credentials_validation = true\n"
                  "  skip_metadata_api_check     = true\n"
                  "  skip_region_validation      = true\n"
                  "  skip_requesting_account_id  = true\n"
                  "  endpoints {\n");
    hcl_pair(out, "    ec2 = ", c->endpoint);
    hcl_pair(out, "    s3  = ", c->s3_endpoint);
    hcl_pair(out, "    sts = ", c->endpoint);
    buf_addc(out, "  }\n}\n");
}

static const struct {
    const char *name;
    void (*text)(const struct client_setup *c, struct buf *out);
} clients[] = {
    {"aws", aws_text},       {"boto3", boto3_text},         {"node", node_text},
    {"rclone", rclone_text}, {"terraform", terraform_text},
};

const char *client_name(size_t i)
{
    return i < ARRAY_LEN(clients) ? clients[i].name : NULL;
}

bool client_text(const char *name, const struct client_setup *c, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(clients); i++) {
        if (strcmp(clients[i].name, name) == 0) {
            clients[i].text(c, out);
            return true;
        }
    }
    return false;
}

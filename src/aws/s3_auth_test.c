/* Who sends a request: the examples of AWS's S3 documentation as right values, one byte changed
 * anywhere, and a code for every way of being wrong. */
#include "aws/s3_test_req.h"

#define AUTH(headers, sig)                               \
    "Authorization: AWS4-HMAC-SHA256 Credential=" KEY_ID \
    "/20130524/us-east-1/s3/aws4_request,SignedHeaders=" headers ",Signature=" sig "\n"
#define HOST "Host: examplebucket.s3.amazonaws.com\n"
#define DATE "x-amz-date: 20130524T000000Z\n"

/* Examples of "Signature Calculations for the Authorization Header" and of "Authenticating
 * Requests: Using Query Parameters". */
static const struct {
    const char *name, *text;
    enum s3_payload payload;
    bool is_presigned;
} good[] = {
    {"GET Object",
     "GET /test.txt\n" HOST "Range: bytes=0-9\nx-amz-content-sha256: " NO_HASH
     "\n" DATE AUTH("host;range;x-amz-content-sha256;x-amz-date",
                    "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
     S3_PAYLOAD_SHA256, false},
    {"PUT Object",
     "PUT /test$file.text\n" HOST "Date: Fri, 24 May 2013 00:00:00 GMT\n" DATE
     "x-amz-storage-class: REDUCED_REDUNDANCY\n"
     "x-amz-content-sha256: "
     "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072\n" AUTH(
         "date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class",
         "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"),
     S3_PAYLOAD_SHA256, false},
    {"GET Bucket Lifecycle",
     "GET /?lifecycle\n" HOST DATE "x-amz-content-sha256: " NO_HASH
     "\n" AUTH("host;x-amz-content-sha256;x-amz-date",
               "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
     S3_PAYLOAD_SHA256, false},
    {"GET Bucket (List Objects)",
     "GET /?max-keys=2&prefix=J\n" HOST DATE "x-amz-content-sha256: " NO_HASH
     "\n" AUTH("host;x-amz-content-sha256;x-amz-date",
               "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
     S3_PAYLOAD_SHA256, false},
    {"Presigned GET",
     "GET /test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=" KEY_ID
     "%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z"
     "&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature="
     "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404\n" HOST,
     S3_PAYLOAD_UNSIGNED, true},
    {"Chunked upload",
     "PUT /examplebucket/chunkObject.txt\nHost: s3.amazonaws.com\n" DATE
     "x-amz-storage-class: REDUCED_REDUNDANCY\n"
     "x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\n"
     "Content-Encoding: aws-chunked\nx-amz-decoded-content-length: 66560\n"
     "Content-Length: 66824\n" AUTH(
         "content-encoding;content-length;host;x-amz-content-sha256;x-amz-date;"
         "x-amz-decoded-content-length;x-amz-storage-class",
         "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"),
     S3_PAYLOAD_SIGNED, false},
    {"Chunked upload with a trailer",
     "PUT /examplebucket/chunkObject.txt\nHost: s3.amazonaws.com\n" DATE
     "x-amz-storage-class: REDUCED_REDUNDANCY\n"
     "x-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER\n"
     "Content-Encoding: aws-chunked\nx-amz-decoded-content-length: 66560\n"
     "x-amz-trailer: x-amz-checksum-crc32c\nContent-Length: 66824\n" AUTH(
         "content-encoding;host;x-amz-content-sha256;x-amz-date;"
         "x-amz-decoded-content-length;x-amz-storage-class;x-amz-trailer",
         "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e"),
     S3_PAYLOAD_SIGNED_TRAILER, false},
};

static void test_documented_examples(void **state)
{
    struct s3_test *t = *state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        s3_test_req(t, good[i].text);
        assert_string_equal(s3_test_verify(t), "");
        assert_int_equal(t->auth.payload, good[i].payload);
        assert_int_equal(t->auth.is_presigned, good[i].is_presigned);
        assert_false(t->auth.is_anonymous);
        assert_true(str_eqc(t->auth.access_key, KEY_ID));
        assert_true(str_eqc(t->auth.who.account, "123456789012"));
        assert_true(str_eqc(t->auth.scope, "20130524/us-east-1/s3/aws4_request"));
        assert_true(str_eqc(t->auth.amz_date, "20130524T000000Z"));
        if (s3_payload_is_chunked(t->auth.payload)) {
            assert_int_equal(t->auth.decoded_length, 66560);
            assert_int_equal(strlen(t->auth.seed_signature), 64);
        }
        s3_auth_done(&t->auth);
        static const uint8_t zero[32];
        assert_memory_equal(t->auth.signing_key, zero, sizeof(zero));
    }
}

/* No byte of what is signed may differ, and no request that fails has a principal. */
static void test_one_byte_changed(void **state)
{
    struct s3_test *t = *state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        s3_test_req(t, good[i].text);
        struct str *const parts[] = {&t->rq.method, &t->rq.path, &t->rq.query};
        for (size_t p = 0; p < ARRAY_LEN(parts) + t->rq.n_headers; p++) {
            struct str *s = p < ARRAY_LEN(parts) ? parts[p] : NULL;
            if (!s && (str_ieqc(t->headers[p - ARRAY_LEN(parts)].name, "Content-Length") ||
                       str_ieqc(t->headers[p - ARRAY_LEN(parts)].name, "Content-Encoding"))) {
                continue; /* not signed in all of the examples */
            }
            s = s ? s : &t->headers[p - ARRAY_LEN(parts)].value;
            for (size_t at = 0; at < s->n; at++) {
                char *copy = arena_alloc(t->a, s->n);
                assert_non_null(copy);
                memcpy(copy, s->p, s->n);
                copy[at] = copy[at] == 'b' ? 'c' : 'b';
                struct str before = *s;
                *s = str_n(copy, before.n);
                assert_string_not_equal(s3_test_verify(t), "");
                assert_null(t->auth.who.account.p);
                *s = before;
            }
        }
        assert_string_equal(s3_test_verify(t), "");
        arena_reset(t->a);
    }
}

#define GET_HEAD     "GET /b/k\nHost: s3.local\n"
#define UNSIGNED     "x-amz-content-sha256: UNSIGNED-PAYLOAD\n"
#define SIGN_UP      "Authorization: AWS4-HMAC-SHA256 "
#define CRED         "Credential=" KEY_ID "/20130524/us-east-1/s3/aws4_request"
#define SIG64        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define REST         ", SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature=" SIG64 "\n"
#define Q_CREDENTIAL "X-Amz-Credential=" KEY_ID "%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
#define Q_ALL                                                                        \
    "X-Amz-Algorithm=AWS4-HMAC-SHA256&" Q_CREDENTIAL "&X-Amz-Date=20130524T000000Z&" \
    "X-Amz-SignedHeaders=host&X-Amz-Signature=" SIG64

static const struct {
    const char *text, *code, *msg;
} bad[] = {
    /* other mechanisms */
    {GET_HEAD "Authorization: \n", "AccessDenied", "Access Denied"},
    {GET_HEAD "Authorization: AWS HAHAHA\n", "InvalidArgument", "AWS authorization header"},
    {GET_HEAD "Authorization: AWS " KEY_ID ":c2ln\n", "InvalidRequest",
     "The authorization mechanism you have provided is not supported. Please use "
     "AWS4-HMAC-SHA256."},
    {GET_HEAD "Authorization: AWS4-ECDSA-P256-SHA256 " CRED REST, "InvalidRequest",
     "The authorization mechanism"},
    {GET_HEAD "Authorization: Bearer x\n", "InvalidArgument", "Unsupported Authorization Type"},
    {GET_HEAD "Authorization: Basic\n", "InvalidArgument", "Authorization header is invalid"},
    {"GET /b/k?AWSAccessKeyId=" KEY_ID "&Expires=1&Signature=x\nHost: h\n", "InvalidRequest",
     "The authorization mechanism"},
    {"GET /b/k?" Q_ALL "&X-Amz-Expires=60\nHost: h\n" SIGN_UP CRED REST, "InvalidArgument",
     "Only one auth mechanism allowed"},
    {"GET /b/k?Signature=x\nHost: h\n" SIGN_UP CRED REST, "InvalidArgument",
     "Only one auth mechanism allowed"},
    {GET_HEAD SIGN_UP CRED REST SIGN_UP CRED REST, "InvalidArgument", "Only one auth"},
    /* the header */
    {GET_HEAD UNSIGNED DATE SIGN_UP "Credential=" KEY_ID "/20130524/us-east-1/s3" REST,
     "AuthorizationHeaderMalformed",
     "The authorization header is malformed; the Credential is mal-formed"},
    {GET_HEAD UNSIGNED DATE SIGN_UP "Credential=" KEY_ID
                                    "/20130524/us-east-1/s3/aws4_request/x" REST,
     "AuthorizationHeaderMalformed", "The authorization header is malformed; the Credential"},
    {GET_HEAD UNSIGNED DATE SIGN_UP "Credential=" KEY_ID
                                    "/20130524/us-east-1/s3/aws5_request" REST,
     "AuthorizationHeaderMalformed", "The authorization header is malformed; the Credential"},
    {GET_HEAD UNSIGNED DATE SIGN_UP "Credential=/20130524/us-east-1/s3/aws4_request" REST,
     "AuthorizationHeaderMalformed", "The authorization header is malformed; the Credential"},
    {GET_HEAD UNSIGNED DATE SIGN_UP "Credential=" KEY_ID
                                    "/20130525/us-east-1/s3/aws4_request" REST,
     "AuthorizationHeaderMalformed",
     "The authorization header is malformed; Invalid credential date \"20130525\". This date "
     "is "
     "not the same as X-Amz-Date: \"20130524\"."},
    {GET_HEAD UNSIGNED DATE SIGN_UP "Credential=" KEY_ID
                                    "/20130524/eu-west-1/s3/aws4_request" REST,
     "AuthorizationHeaderMalformed",
     "The authorization header is malformed; the region 'eu-west-1' is wrong; expecting "
     "'us-east-1'"},
    {GET_HEAD UNSIGNED DATE SIGN_UP "Credential=" KEY_ID
                                    "/20130524/us-east-1/ec2/aws4_request" REST,
     "AuthorizationHeaderMalformed",
     "The authorization header is malformed; the service 'ec2'"},
    {GET_HEAD UNSIGNED DATE SIGN_UP CRED "\n", "AuthorizationHeaderMalformed",
     "The authorization header is malformed; the authorization header requires three "
     "components"},
    {GET_HEAD UNSIGNED DATE SIGN_UP CRED ", Foo=1" REST, "AuthorizationHeaderMalformed",
     "The authorization header is malformed; the authorization component \"Foo=1\" is "
     "malformed."},
    {GET_HEAD UNSIGNED DATE SIGN_UP CRED ", " CRED REST, "AuthorizationHeaderMalformed", ""},
    {GET_HEAD UNSIGNED DATE SIGN_UP CRED ", SignedHeaders=host, Signature=abc\n",
     "AuthorizationHeaderMalformed", ""},
    {GET_HEAD UNSIGNED DATE SIGN_UP CRED ", SignedHeaders=ho st, Signature=" SIG64 "\n",
     "AuthorizationHeaderMalformed", ""},
    {GET_HEAD UNSIGNED SIGN_UP CRED REST, "AccessDenied",
     "AWS authentication requires a valid Date or x-amz-date header"},
    {GET_HEAD UNSIGNED "x-amz-date: yesterday\n" SIGN_UP CRED REST, "AccessDenied",
     "AWS authentication requires a valid Date"},
    {GET_HEAD UNSIGNED "Date: Fri, 24 May 2013 00:00:00 -0100\n" SIGN_UP CRED REST,
     "AccessDenied", "AWS authentication requires a valid Date"},
    {GET_HEAD UNSIGNED "Date: Fri, 24 May 2013 00:00:00 -0000\n" SIGN_UP CRED REST,
     "SignatureDoesNotMatch", ""}, /* a date, then */
    {GET_HEAD UNSIGNED "Date: -0000\n" SIGN_UP CRED REST, "AccessDenied",
     "AWS authentication requires a valid Date"},
    {GET_HEAD UNSIGNED DATE SIGN_UP CRED REST, "SignatureDoesNotMatch",
     "The request signature we calculated does not match"},
    /* the payload */
    {GET_HEAD DATE SIGN_UP CRED REST, "InvalidRequest",
     "Missing required header for this request: x-amz-content-sha256"},
    {GET_HEAD DATE "x-amz-content-sha256: nonsense\n" SIGN_UP CRED REST, "InvalidArgument",
     "x-amz-content-sha256 must be UNSIGNED-PAYLOAD"},
    {GET_HEAD DATE "x-amz-content-sha256: unsigned-payload\n" SIGN_UP CRED REST,
     "InvalidArgument", "x-amz-content-sha256 must be"},
    {GET_HEAD DATE
     "x-amz-content-sha256: STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD\n" SIGN_UP CRED REST,
     "NotImplemented", "Payloads signed with AWS4-ECDSA-P256-SHA256"},
    {GET_HEAD DATE UNSIGNED UNSIGNED SIGN_UP CRED REST, "InvalidArgument",
     "x-amz-content-sha256 is given more than once"},
    {GET_HEAD DATE
     "x-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\n" SIGN_UP CRED REST,
     "MissingContentLength", ""},
    {GET_HEAD DATE "x-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\n"
                   "x-amz-decoded-content-length: -5\n" SIGN_UP CRED REST,
     "InvalidArgument", ""},
    {GET_HEAD DATE UNSIGNED "x-amz-trailer: x-amz-checksum-crc32\n" SIGN_UP CRED REST,
     "InvalidRequest", "The x-amz-trailer header needs"},
    {"PUT /b/k\nHost: h\nx-amz-content-sha256: STREAMING-AWS4-HMAC-SHA256-PAYLOAD\n"
     "x-amz-decoded-content-length: 5\n",
     "InvalidRequest", "Anonymous requests don't support this x-amz-content-sha256 value."},
    /* the query */
    {"GET /b/k?" Q_ALL "\nHost: h\n", "AuthorizationQueryParametersError",
     "Query-string authentication version 4 requires"},
    {"GET /b/k?X-Amz-Signature=" SIG64 "\nHost: h\n", "AuthorizationQueryParametersError",
     "Query-string authentication version 4 requires"},
    {"GET /b/k?" Q_ALL "&X-Amz-Expires=604801\nHost: h\n", "AuthorizationQueryParametersError",
     "X-Amz-Expires must be less than a week (in seconds)"},
    {"GET /b/k?" Q_ALL "&X-Amz-Expires=-7\nHost: h\n", "AccessDenied", "Request has expired"},
    {"GET /b/k?" Q_ALL "&X-Amz-Expires=x\nHost: h\n", "AuthorizationQueryParametersError",
     "X-Amz-Expires should be a number"},
    {"GET /b/k?" Q_ALL "&X-Amz-Expires=0\nHost: h\n", "AccessDenied", "Request has expired"},
    {"GET /b/k?" Q_ALL "&X-Amz-Expires=60&X-Amz-Expires=61\nHost: h\n",
     "AuthorizationQueryParametersError", ""},
    {"GET /b/k?" Q_ALL "&X-Amz-Expires=60\nHost: h\n", "SignatureDoesNotMatch", ""},
    {"GET /b/k?" Q_ALL "&X-Amz-Expires=60\nHost: h\nx-amz-acl: public-read\n", "AccessDenied",
     "There were headers present in the request which were not signed"},
    {"GET /b/k?X-Amz-Algorithm=AWS4-ECDSA-P256-SHA256&" Q_CREDENTIAL
     "&X-Amz-Date=20130524T000000Z&X-Amz-SignedHeaders=host&X-Amz-Signature=" SIG64
     "&X-Amz-Expires=60\nHost: h\n",
     "AuthorizationQueryParametersError", "X-Amz-Algorithm only supports"},
    {"GET /b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=x&X-Amz-Date=20130524T000000Z"
     "&X-Amz-SignedHeaders=host&X-Amz-Signature=" SIG64 "&X-Amz-Expires=60\nHost: h\n",
     "AuthorizationQueryParametersError",
     "Error parsing the X-Amz-Credential parameter; the Credential is mal-formed"},
    {"GET /b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=" KEY_ID
     "%2F20130524%2Feu-west-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z"
     "&X-Amz-SignedHeaders=host&X-Amz-Signature=" SIG64 "&X-Amz-Expires=60\nHost: h\n",
     "AuthorizationQueryParametersError",
     "Error parsing the X-Amz-Credential parameter; the region 'eu-west-1' is wrong"},
    {"GET /b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&" Q_CREDENTIAL
     "&X-Amz-Date=today&X-Amz-SignedHeaders=host&X-Amz-Signature=" SIG64
     "&X-Amz-Expires=60\nHost: h\n",
     "AuthorizationQueryParametersError", "X-Amz-Date must be in the ISO8601 Long Format"},
    {"GET /b/%zz\nHost: s3.local\n" UNSIGNED DATE SIGN_UP CRED REST, "InvalidURI", ""},
};

static void test_refusals(void **state)
{
    struct s3_test *t = *state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        s3_test_req(t, bad[i].text);
        assert_string_equal(s3_test_verify(t), bad[i].code);
        if (strncmp(t->err.msg, bad[i].msg, strlen(bad[i].msg)) != 0) {
            fail_msg("case %zu: %s", i, t->err.msg);
        }
        assert_null(t->auth.who.account.p);
    }
}

/* The codes of keys, tokens, times and unsigned headers, on requests that are signed well. */
static void test_signed_but_refused(void **state)
{
    static const struct {
        const char *key, *extra_headers, *list, *code;
        int64_t now_s;
    } cases[] = {
        {KEY_ID, "", "host;x-amz-content-sha256;x-amz-date", "", 0},
        {KEY_ID, "", "host;x-amz-content-sha256;x-amz-date", "", 900},
        {KEY_ID, "", "host;x-amz-content-sha256;x-amz-date", "", -900},
        {KEY_ID, "", "host;x-amz-content-sha256;x-amz-date", "RequestTimeTooSkewed", 901},
        {KEY_ID, "", "host;x-amz-content-sha256;x-amz-date", "RequestTimeTooSkewed", -901},
        {"AKIANOBODY", "", "host;x-amz-date", "InvalidAccessKeyId", 0},
        {"AKIAINACTIVE", "", "host;x-amz-date", "InvalidAccessKeyId", 0},
        {"BROKENSTORE", "", "host;x-amz-date", "StoreBroken", 0},
        {"ASIATEMP", "", "host;x-amz-date", "InvalidAccessKeyId", 0},
        {"ASIATEMP", "x-amz-security-token: good/token+x=\n",
         "host;x-amz-date;x-amz-security-token", "", 0},
        {"ASIATEMP", "x-amz-security-token: good/token+x=\n", "host;x-amz-date", "AccessDenied",
         0},
        {"ASIATEMP", "x-amz-security-token: other\n", "host;x-amz-date;x-amz-security-token",
         "InvalidToken", 0},
        {"ASIAOLD", "x-amz-security-token: good/token+x=\n",
         "host;x-amz-date;x-amz-security-token", "ExpiredToken", 0},
        {KEY_ID, "x-amz-security-token: good/token+x=\n",
         "host;x-amz-date;x-amz-security-token", "InvalidToken", 0},
        /* unsigned x-amz-* on a signed request */
        {KEY_ID, "x-amz-meta-a: 1\n", "host;x-amz-date", "AccessDenied", 0},
        {KEY_ID, "X-AMZ-Copy-Source: /a/b\n", "host;x-amz-date", "AccessDenied", 0},
        {KEY_ID, "x-amz-meta-a: 1\n", "host;x-amz-date;x-amz-meta-a", "", 0},
        {KEY_ID, "Content-Type: text/plain\n", "host;x-amz-date", "", 0},
        {KEY_ID, "", "x-amz-content-sha256;x-amz-date", "AccessDenied", 0}, /* no host */
        {KEY_ID, "", "host", "AccessDenied", 0},                            /* no date */
    };
    struct s3_test *t = *state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str text = arena_fmt(t->a, GET_HEAD UNSIGNED DATE "%s", cases[i].extra_headers);
        s3_test_req(t, text.p);
        /* The signer wants a host in the list. */
        if (strstr(cases[i].list, "host")) {
            s3_test_sign(t, cases[i].key, cases[i].list);
        } else {
            s3_test_add(t, "Authorization",
                        "AWS4-HMAC-SHA256 " CRED ", SignedHeaders="
                        "x-amz-content-sha256;x-amz-date, Signature=" SIG64);
        }
        t->rq.now_ns = T_2013_NS + (uint64_t)cases[i].now_s * NS_PER_S;
        const char *got = s3_test_verify(t);
        if (strcmp(got, cases[i].code) != 0) {
            fail_msg("case %zu: %s: %s", i, got, t->err.msg);
        }
    }
}

/* Bug 3 of the research: the check must not depend on what a handler looks for. A request with
 * half of a signature is nobody's or refused, never somebody's. */
static void test_signature_never_checked_on_one_route(void **state)
{
    static const char *const texts[] = {
        "GET /b/k?X-Amz-Credential=" KEY_ID
        "%2F20130524%2Fus-east-1%2Fs3%2Faws4_request\nHost: "
        "h\n",
        "PUT /b/k?X-Amz-Algorithm=AWS4-HMAC-SHA256\nHost: h\n",
        "PUT /b/k\nHost: h\nAuthorization: AWS4-HMAC-SHA256\n",
        "PUT /b/k\nHost: h\nAuthorization: AWS4-HMAC-SHA256 Credential=\n",
        "PUT /b/k\nHost: h\nX-Amz-Content-Sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\n"
        "x-amz-decoded-content-length: 1\nAuthorization: AWS4-HMAC-SHA256 " CRED "\n",
        "PUT /b/k\nHost: h\nX-Amz-Content-Sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\n"
        "x-amz-decoded-content-length: 1\nx-amz-date: 20130524T000000Z\n" SIGN_UP CRED REST,
    };
    struct s3_test *t = *state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        s3_test_req(t, texts[i]);
        assert_string_not_equal(s3_test_verify(t), "");
        assert_null(t->auth.who.account.p);
    }
}

static void test_anonymous(void **state)
{
    struct s3_test *t = *state;
    s3_test_req(t, "GET /b/k?versionId=1&AWSAccess=1\nHost: h\n");
    assert_string_equal(s3_test_verify(t), "");
    assert_true(t->auth.is_anonymous);
    assert_null(t->auth.who.account.p);
    assert_int_equal(t->auth.payload, S3_PAYLOAD_UNSIGNED);
    assert_int_equal(t->n_finds, 0);
    /* The body of nobody is de-chunked and compared as well. */
    s3_test_req(t,
                "PUT /b/k\nHost: h\nx-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\n"
                "x-amz-decoded-content-length: 7\nx-amz-trailer: X-Amz-Checksum-CRC32 , \n");
    assert_string_equal(s3_test_verify(t), "");
    assert_int_equal(t->auth.payload, S3_PAYLOAD_UNSIGNED_TRAILER);
    assert_int_equal(t->auth.decoded_length, 7);
    assert_int_equal(t->auth.trailers.n, 1);
    assert_true(str_eqc(t->auth.trailers.v[0], "x-amz-checksum-crc32"));
}

/* Signs the query form over 'query', appends the signature and verifies. */
static const char *presign(struct s3_test *t, const char *path, const char *key,
                           const char *more, const char *list, const char *headers)
{
    struct sigv4_auth auth = {.is_presigned = true,
                              .access_key = str_c(key),
                              .date = STR("20130524"),
                              .region = STR("us-east-1"),
                              .service = STR("s3"),
                              .signed_headers = str_c(list),
                              .amz_date = STR("20130524T000000Z")};
    struct str text = arena_fmt(
        t->a,
        "GET %s?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=%s%%2F20130524%%2Fus-east-1"
        "%%2Fs3%%2Faws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=60&"
        "X-Amz-SignedHeaders=%s%s\nHost: h\n%s",
        path, key, list, more, headers);
    s3_test_req(t, text.p);
    struct str hash = aws_http_header(&t->rq, "x-amz-content-sha256");
    struct str sig = sigv4_sign(t->a, &t->rq, STR(SECRET), &auth, SIGV4_S3,
                                str_is_set(hash) ? hash : STR("UNSIGNED-PAYLOAD"));
    t->rq.query =
        arena_fmt(t->a, "%.*s&X-Amz-Signature=%.*s", STR_ARG(t->rq.query), STR_ARG(sig));
    return s3_test_verify(t);
}

static void test_presigned(void **state)
{
    struct s3_test *t = *state;
    assert_string_equal(presign(t, "/b/k", KEY_ID, "", "host", ""), "");
    t->rq.now_ns = T_2013_NS + 60 * NS_PER_S;
    assert_string_equal(s3_test_verify(t), "");
    t->rq.now_ns++;
    assert_string_equal(s3_test_verify(t), "AccessDenied");
    assert_string_equal(t->err.msg, "Request has expired");
    assert_true(str_eqc(s3_test_extra(&t->extra, "X-Amz-Expires"), "60"));
    assert_true(str_eqc(s3_test_extra(&t->extra, "Expires"), "2013-05-24T00:01:00Z"));
    t->rq.now_ns = T_2013_NS - 900 * NS_PER_S;
    assert_string_equal(s3_test_verify(t), "");
    t->rq.now_ns -= NS_PER_S;
    assert_string_equal(s3_test_verify(t), "AccessDenied");
    assert_string_equal(t->err.msg, "Request is not valid yet");
    /* tokens */
    assert_string_equal(
        presign(t, "/b/k", "ASIATEMP", "&X-Amz-Security-Token=good%2Ftoken%2Bx%3D", "host", ""),
        "");
    assert_string_equal(presign(t, "/b/k", "ASIATEMP", "", "host", ""), "InvalidAccessKeyId");
    assert_string_equal(presign(t, "/b/k", "ASIATEMP", "&X-Amz-Security-Token=bad", "host", ""),
                        "InvalidToken");
    /* headers: signed, unsigned */
    assert_string_equal(
        presign(t, "/b/k", KEY_ID, "", "host;x-amz-acl", "x-amz-acl: private\n"), "");
    assert_string_equal(presign(t, "/b/k", KEY_ID, "", "host", "x-amz-acl: private\n"),
                        "AccessDenied");
    assert_true(str_eqc(s3_test_extra(&t->extra, "HeadersNotSigned"), "x-amz-acl"));
    /* the payload: a header counts, bound by being the last line of what is signed */
    assert_string_equal(
        presign(t, "/b/k", KEY_ID, "", "host", "x-amz-content-sha256: " NO_HASH "\n"), "");
    assert_int_equal(t->auth.payload, S3_PAYLOAD_SHA256);
    struct http_header *payload = s3_test_header(t, "x-amz-content-sha256");
    if (!payload) {
        abort();
    }
    payload->value = STR("UNSIGNED-PAYLOAD");
    assert_string_equal(s3_test_verify(t), "SignatureDoesNotMatch");
}

/* SDKs move x-amz-* headers of a presigned request into its query. */
static void test_hoisted_headers(void **state)
{
    struct s3_test *t = *state;
    assert_string_equal(presign(t, "/b/k", KEY_ID,
                                "&x-amz-meta-caf=a%20b+c%C3%A9&X-Amz-Storage-Class=STANDARD_IA"
                                "&x-id=GetObject&prefix=x",
                                "host", ""),
                        "");
    assert_int_equal(t->auth.n_headers, t->rq.n_headers + 2);
    const struct http_header *h = &t->auth.headers[t->rq.n_headers];
    assert_true(str_eqc(h[0].name, "x-amz-meta-caf") && str_eqc(h[0].value, "a b c\xc3\xa9"));
    assert_true(str_eqc(h[1].name, "X-Amz-Storage-Class"));
    assert_true(str_eqc(h[1].value, "STANDARD_IA"));
    /* No header can be smuggled by a line end. */
    assert_string_equal(
        presign(t, "/b/k", KEY_ID, "&x-amz-meta-a=1%0d%0aSet-Cookie:x", "host", ""),
        "InvalidArgument");
    assert_string_equal(presign(t, "/b/k", KEY_ID, "&x-amz-meta-a%3A=1", "host", ""),
                        "InvalidArgument");
    /* Only a signature over the query makes them headers. */
    s3_test_req(t, "GET /b/k?x-amz-meta-a=1\nHost: h\n");
    assert_string_equal(s3_test_verify(t), "");
    assert_int_equal(t->auth.n_headers, t->rq.n_headers);
}

/* Bug 12 of the research: which spelling of the path is signed. */
static void test_canonical_path(void **state)
{
    static const struct {
        const char *sent, *signed_path;
        bool is_good;
    } cases[] = {
        {"/b/a//b/./../c", "/b/a//b/./../c", true}, /* nothing is normalised */
        {"/b/a//b/./../c", "/b/a/c", false},
        {"/b/x%20y", "/b/x%20y", true},
        {"/b/x%20y", "/b/x%2520y", false}, /* encoded once */
        {"/b/a+b", "/b/a%2Bb", true},      /* '+' is a plus */
        {"/b/a+b", "/b/a+b", true},        /* as sent */
        {"/b/a+b", "/b/a%20b", false},
        {"/b/a%2Fb", "/b/a%2Fb", true},
        {"/b/a%2Fb", "/b/a/b", true},
        {"/b/a%2fb", "/b/a%2Fb", true},
        {"/b/a/b", "/b/a%2Fb", false},
        {"/b/%7Etilde", "/b/~tilde", true},
        {"/b/%7Etilde", "/b/%7Etilde", true},
        {"/b/(x)!*'", "/b/%28x%29%21%2A%27", true},
        {"/b/(x)!*'", "/b/(x)!*'", true},
        {"/b/caf%C3%A9", "/b/caf%C3%A9", true},
        {"/b/caf\xc3\xa9", "/b/caf%C3%A9", true},
        {"/b/k", "/b/K", false},
    };
    struct s3_test *t = *state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str hash = STR("UNSIGNED-PAYLOAD");
        struct sigv4_auth auth = {.access_key = STR(KEY_ID),
                                  .date = STR("20130524"),
                                  .region = STR("us-east-1"),
                                  .service = STR("s3"),
                                  .signed_headers = STR("host;x-amz-date"),
                                  .amz_date = STR("20130524T000000Z")};
        s3_test_req(t, GET_HEAD UNSIGNED DATE);
        t->rq.path = str_c(cases[i].signed_path);
        struct str value =
            sigv4_sign(t->a, &t->rq, STR(SECRET), &auth, SIGV4_S3 | SIGV4_RAW_PATH, hash);
        s3_test_add(t, "Authorization", arena_cstr(t->a, value));
        t->rq.path = str_c(cases[i].sent);
        const char *got = s3_test_verify(t);
        if (strcmp(got, cases[i].is_good ? "" : "SignatureDoesNotMatch") != 0) {
            fail_msg("'%s' signed as '%s': '%s'", cases[i].sent, cases[i].signed_path, got);
        }
    }
}

/* What AWS shows beside the code, and never the secret. */
static void test_extras(void **state)
{
    struct s3_test *t = *state;
    s3_test_req(t, GET_HEAD UNSIGNED DATE SIGN_UP CRED REST);
    assert_string_equal(s3_test_verify(t), "SignatureDoesNotMatch");
    assert_true(str_eqc(s3_test_extra(&t->extra, "AWSAccessKeyId"), KEY_ID));
    assert_true(str_eqc(s3_test_extra(&t->extra, "SignatureProvided"), SIG64));
    assert_true(str_has_prefixc(s3_test_extra(&t->extra, "StringToSign"),
                                "AWS4-HMAC-SHA256\n20130524T000000Z\n20130524/us-east-1/s3/"
                                "aws4_request\n"));
    assert_true(str_eqc(s3_test_extra(&t->extra, "CanonicalRequest"),
                        "GET\n/b/k\n\nhost:s3.local\nx-amz-content-sha256:UNSIGNED-PAYLOAD\n"
                        "x-amz-date:20130524T000000Z\n\nhost;x-amz-content-sha256;x-amz-date\n"
                        "UNSIGNED-PAYLOAD"));
    assert_true(
        str_has_prefixc(s3_test_extra(&t->extra, "CanonicalRequestBytes"), "47 45 54 0a"));
    for (size_t i = 0; i < t->extra.n; i++) {
        assert_true(str_find_str(t->extra.v[i].value, STR(SECRET)) < 0);
    }
    assert_null(strstr(t->err.msg, SECRET));
    s3_test_req(t, GET_HEAD UNSIGNED DATE SIGN_UP "Credential=" KEY_ID
                                                  "/20130524/eu-west-1/s3/aws4_request" REST);
    assert_string_equal(s3_test_verify(t), "AuthorizationHeaderMalformed");
    assert_true(str_eqc(s3_test_extra(&t->extra, "Region"), "us-east-1"));
    s3_test_req(t, GET_HEAD UNSIGNED DATE SIGN_UP CRED REST);
    t->rq.now_ns += 3600 * NS_PER_S;
    assert_string_equal(s3_test_verify(t), "RequestTimeTooSkewed");
    assert_true(str_eqc(s3_test_extra(&t->extra, "RequestTime"), "20130524T000000Z"));
    assert_true(str_eqc(s3_test_extra(&t->extra, "ServerTime"), "2013-05-24T01:00:00Z"));
    assert_true(str_eqc(s3_test_extra(&t->extra, "MaxAllowedSkewMilliseconds"), "900000"));
}

/* Bug 1 of the research: aws-chunked is a transfer matter and never stored. */
static void test_content_encoding_keeps_no_aws_chunked(void **state)
{
    struct s3_test *t = *state;
    static const struct {
        const char *in, *want;
    } cases[] = {{"aws-chunked", NULL},
                 {"aws-chunked,gzip", "gzip"},
                 {"gzip, AWS-Chunked", "gzip"},
                 {"gzip", "gzip"},
                 {"deflate, gzip", "deflate, gzip"},
                 {"deflate,gzip", "deflate,gzip"},
                 {"deflate, gzip,aws-chunked", "deflate, gzip"},
                 {"zstd,aws-chunked, br", "zstd, br"},
                 {"aws-chunked, aws-chunked", NULL},
                 {"", NULL}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str got = s3_coding_strip(t->a, str_c(cases[i].in));
        assert_true(cases[i].want ? str_eqc(got, cases[i].want) : !str_is_set(got));
    }
    assert_false(str_is_set(s3_coding_strip(t->a, STR_NONE)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_documented_examples, s3_test_setup,
                                        s3_test_teardown),
        cmocka_unit_test_setup_teardown(test_one_byte_changed, s3_test_setup, s3_test_teardown),
        cmocka_unit_test_setup_teardown(test_refusals, s3_test_setup, s3_test_teardown),
        cmocka_unit_test_setup_teardown(test_signed_but_refused, s3_test_setup,
                                        s3_test_teardown),
        cmocka_unit_test_setup_teardown(test_signature_never_checked_on_one_route,
                                        s3_test_setup, s3_test_teardown),
        cmocka_unit_test_setup_teardown(test_anonymous, s3_test_setup, s3_test_teardown),
        cmocka_unit_test_setup_teardown(test_presigned, s3_test_setup, s3_test_teardown),
        cmocka_unit_test_setup_teardown(test_hoisted_headers, s3_test_setup, s3_test_teardown),
        cmocka_unit_test_setup_teardown(test_canonical_path, s3_test_setup, s3_test_teardown),
        cmocka_unit_test_setup_teardown(test_extras, s3_test_setup, s3_test_teardown),
        cmocka_unit_test_setup_teardown(test_content_encoding_keeps_no_aws_chunked,
                                        s3_test_setup, s3_test_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

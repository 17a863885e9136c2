#!/usr/bin/env python3
"""What the generator must refuse, what it must name, and that the same input gives the same bytes."""
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import apifile  # noqa: E402

API = '''service tiny
version 2020-01-01
protocol query
signing tiny
id Tiny
xmlns https://example.com/

op Do in=DoRequest out=DoResponse
op Other

enum Color red dark%20blue dark-blue
list Names Text
string Text min=1 max=5 pattern=[a-z ]+
struct DoRequest
  Name Text req
  Color Color
  List Names
  default Text
  3D Text
struct DoResponse
'''


REST = '''service tiny
version 2020-01-01
protocol rest-xml
signing tiny
id Tiny
xmlns https://example.com/

op GetThing in=GetThingRequest out=GetThingOutput http=GET,/{Bucket}/{Key+}
op ListThings in=ListThingsRequest http=GET,/{Bucket}?list-type=2
op OldThing in=ListThingsRequest http=GET,/{Bucket}?list-type=2 old
op PutThing in=PutThingRequest http=PUT,/{Bucket}/{Key+},201 checksum=Sum,required

string Text
struct Inner ns=xsi,http://www.w3.org/2001/XMLSchema-instance
  Kind Text loc=xsi:type attr
struct GetThingRequest
  Bucket Text loc=Bucket at=uri req
  Key Text loc=Key at=uri req
  Part Text loc=partNumber at=query
struct GetThingOutput
  Thing Inner loc=TheThing payload
struct ListThingsRequest
  Bucket Text loc=Bucket at=uri req
struct PutThingRequest
  Bucket Text loc=Bucket at=uri req
  Key Text loc=Key at=uri req
  UploadId Text loc=uploadId at=query req
  Sum Text loc=X-Sum at=header
  Body Text stream payload
'''


class Generate(unittest.TestCase):
    def run_generator(self, api, ops):
        with tempfile.TemporaryDirectory() as d:
            os.makedirs(d + '/aws/api')
            for name, text in (('tiny.api', api), ('tiny.ops', ops)):
                with open(f'{d}/{name}', 'w', encoding='utf-8') as f:
                    f.write(text)
            outs = [f'{d}/aws/api/tiny.h', f'{d}/aws/api/tiny_handlers.h', f'{d}/aws/api/tiny_tables.c']
            p = subprocess.run([sys.executable, HERE + '/generate.py', d + '/tiny.api', d + '/tiny.ops'] + outs,
                               capture_output=True, text=True, check=False)
            texts = []
            for o in outs if p.returncode == 0 else []:
                with open(o, encoding='utf-8') as f:
                    texts.append(f.read())
            return p.returncode, p.stderr, texts

    def test_good(self):
        rc, err, texts = self.run_generator(API, 'Do full thing/{Name} # remark\n')
        self.assertEqual((rc, err), (0, ''))
        self.assertEqual(texts, self.run_generator(API, 'Do full thing/{Name} # remark\n')[2])
        h, handlers, tables = texts
        for want in ('struct tiny_do_request {', 'struct aws_str_list list;', 'struct str default_;', 'struct str _3_d;',
                     '#define TINY_COLOR_DARK_BLUE STR("dark blue")', '#define TINY_COLOR_DARK_BLUE_ STR("dark-blue")',
                     '    TINY_OP_DO,\n    TINY_OP_OTHER,\n    TINY_OP_N'):
            self.assertIn(want, h)
        self.assertIn('int tiny_do(', handlers)
        self.assertNotIn('tiny_other(', handlers)
        self.assertIn('[a-z ]+', tables)
        self.assertIn('#include "aws/api/tiny.h"', tables)

    def test_rest(self):
        rc, err, texts = self.run_generator(REST, 'GetThing full action=Get/GetVersion thing/{Key}\nListThings no root=Things\n')
        self.assertEqual((rc, err), (0, ''))
        tables = texts[2]
        for want in ('.protocol = AWS_PROTOCOL_REST_XML', '.n_routes = 3', 'AWS_NEED_UPLOAD_ID}', 'AWS_LOC_HEADER}', 'Get/GetVersion', 'x-sum',
                     'TheThing', 'Things', '201, AWS_M_PUT, AWS_REST_SUM | AWS_REST_SUM_REQUIRED | AWS_REST_STREAM_IN'):
            self.assertIn(want, tables)
        rc, _, texts = self.run_generator(REST, 'ListThings no route=-\n')
        self.assertIn('.n_routes = 2', texts[2])
        for api, ops, want in ((REST.replace('loc=X-Sum', 'loc=Key'), 'GetThing full\n', ''), (REST, 'GetThing full colour=red\n', 'unknown option'),
                               (REST.replace('X-Sum at=header', 'Key at=query'), '', 'one name on the wire'),
                               (REST.replace('GET,/{Bucket}/{Key+}', 'GET,/other'), '', 'no route for /other'),
                               (REST.replace('ns=xsi,', 'ns=abc,'), '', 'no codec for the namespace')):
            rc, err, _ = self.run_generator(api, ops)
            self.assertEqual(rc != 0, want != '')
            self.assertIn(want, err)

    def test_refused(self):
        for api, ops, want in ((API, 'Nope full\n', 'Nope is not an operation'), (API, 'Do great\n', 'state is one of'),
                               (API, 'Do full thing/{Nope}\n', 'has no member Nope'), (API, 'open-enum Nope\n', 'no enum Nope'),
                               (API + 'strange Line\n', '', 'unknown line "strange"'),
                               (API.replace('protocol query', 'protocol cbor'), '', 'no codec for protocol cbor')):
            rc, err, _ = self.run_generator(api, ops)
            self.assertNotEqual(rc, 0)
            self.assertIn(want, err)

    def test_names(self):
        for name, want in (('RunInstances', 'run_instances'), ('ClientIDs', 'client_ids'), ('CidrIpv6', 'cidr_ipv6'), ('S3Bucket', 's3_bucket'),
                           ('IPSet', 'ip_set'), ('SSHPublicKeyId', 'ssh_public_key_id')):
            self.assertEqual(apifile.snake(name), want)


if __name__ == '__main__':
    unittest.main()

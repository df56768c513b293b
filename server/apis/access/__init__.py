"""APIs of ACLs and of SASL credentials.

acl_codes  the numbers of ACLs in messages
acls       CreateAcls, DescribeAcls, DeleteAcls
sasl       DescribeUserScramCredentials, AlterUserScramCredentials; the SASL messages where SASL is not used
"""

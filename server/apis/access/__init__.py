"""APIs of ACLs and of SASL credentials.

acls  CreateAcls, DescribeAcls, DeleteAcls
sasl  DescribeUserScramCredentials, AlterUserScramCredentials; SaslHandshake and SaslAuthenticate where SASL is not used
"""

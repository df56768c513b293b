"""Who clients are, and what they may do.

acls  CreateAcls, DescribeAcls, DeleteAcls
sasl  DescribeUserScramCredentials, AlterUserScramCredentials; SaslHandshake and SaslAuthenticate where SASL is not used
"""

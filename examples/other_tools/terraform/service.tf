# The lock service, once for an account and region: the template of `make template`.
# Other configurations read its names as billing.tf does, or from the Parameter Store:
#   data "aws_ssm_parameter" "acquire" { name = "/fairlock/Fairlock/AcquireFunctionArn" }

terraform {
  required_providers {
    archive = { source = "hashicorp/archive" }
    aws     = { source = "hashicorp/aws" }
  }
}

variable "code_bucket" {
  type        = string
  description = "A bucket for the functions' code, in the region of the service."
}

locals {
  template = "${path.module}/../../../out/template"
  code     = one(fileset(local.template, "fairlock-*.zip"))
}

resource "aws_s3_object" "locks" {
  bucket = var.code_bucket
  key    = "fairlock/${local.code}"
  source = "${local.template}/${local.code}"

  lifecycle {
    create_before_destroy = true # a deployment that is rolled back needs the former code
  }
}

resource "aws_cloudformation_stack" "locks" {
  name          = "Fairlock"
  template_body = file("${local.template}/${one(fileset(local.template, "fairlock-*.json"))}")
  capabilities  = ["CAPABILITY_IAM"]
  parameters = {
    CodeBucket    = var.code_bucket
    CodeKeyPrefix = "fairlock/"
  }

  depends_on = [aws_s3_object.locks]
}
